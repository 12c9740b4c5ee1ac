//! How likely a layout is to lose data.
