//! The one integration binary.

mod config_golden;
