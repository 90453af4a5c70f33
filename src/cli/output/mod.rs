//! What goes to the terminal: stdout is data, stderr is talk. Both shells of the event stream
//! for people and programs live here ([`lines`], [`json`]); neither knows what a step does.

pub mod clusters;
pub mod description;
pub mod doctor;
pub mod json;
pub mod lines;
pub mod members;
pub mod results;
pub mod schema;
mod screen;
pub mod snapshot_list;
pub mod status;
mod table;

pub(super) use screen::clip;
pub use screen::{Page, Paint, Room, Screen};
pub(super) use table::paragraph;
