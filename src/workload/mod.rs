//! stub
pub struct Access;
pub enum Awaited {
    Ready,
    Stopped,
    NotYet(String),
}
impl Access {
    pub fn new(
        _: &std::sync::Arc<crate::host::Host>,
        _: &crate::state::Saved,
        _: &crate::desired::pki::EngineClient,
    ) -> Self {
        Self
    }
}
