//! The one integration binary.

mod plan_properties;
mod sim;
