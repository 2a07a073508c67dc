"""The dashboard: pages rendered here, kept live by the event stream, usable without JavaScript."""
