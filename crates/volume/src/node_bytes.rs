//! The bytes of tree blocks.

use userbtrfs_device::Buffer;
use userbtrfs_sync::Arc;

/// A verified tree block.
pub type TreeBlock = userbtrfs_format::TreeBlock<NodeBytes>;

/// The bytes of a tree block, aligned for I/O. They are reference-counted and copied on write.
#[derive(Clone, Debug)]
pub struct NodeBytes(Arc<Buffer>);

impl NodeBytes {
    /// The buffer, as used for device I/O.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0
    }
}

impl From<Buffer> for NodeBytes {
    fn from(buffer: Buffer) -> Self {
        Self(Arc::new(buffer))
    }
}

/// Copies the bytes first if they are shared: other owners do not see the change.
impl AsMut<[u8]> for NodeBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::new(Buffer::from(&self.0[..]));
        }
        Arc::get_mut(&mut self.0).expect("nobody else has it")
    }
}

impl From<Arc<Buffer>> for NodeBytes {
    fn from(buffer: Arc<Buffer>) -> Self {
        Self(buffer)
    }
}

impl AsRef<[u8]> for NodeBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
