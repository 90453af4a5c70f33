//! The one integration binary. Modules `lab_*` want real nodes (root, Docker): nextest's
//! profile `lab` runs them.

mod cli_config;
mod cli_support;
mod cli_usage;
mod contract;
mod fake;
mod host_docker;
mod host_errors;
mod real;
mod sim;

mod lab_remove;
mod lab_up;
mod plan_properties;
