"""What people look at: terminal tables, plots, reports."""
