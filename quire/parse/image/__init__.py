"""Images: their text by OCR, thumbnails, and pages rendered as PNG."""
