"""PDF files, read by PDFium."""
