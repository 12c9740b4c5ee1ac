//! Flash.
use serde::Deserialize;
/// x
#[derive(Clone, Deserialize, Debug)]
pub struct FlashEntry {}
/// x
#[derive(Debug)]
pub struct Spec {
    /// x
    pub sectors: u64,
}
impl FlashEntry {
    /// x
    pub fn spec(&self) -> Spec {
        Spec { sectors: 1 }
    }
}
