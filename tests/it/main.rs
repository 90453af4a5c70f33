//! The one integration binary. Modules `lab_*` want real nodes (root, Docker): nextest's
//! profile `lab` runs them.

mod real;
mod sim;

mod lab_remove;
mod lab_self;
mod lab_up;
mod plan_properties;
