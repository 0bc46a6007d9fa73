//! The commands' side: start, watch, stop, list, query, report.
