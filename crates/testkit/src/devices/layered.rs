//! A device that forwards requests to another one, through a layer that sees all of them.

use userbtrfs_device::{Completion, CrashPoint, Device, Request, Ticket};
use userbtrfs_sync::Arc;

/// The handling of the requests of a [`LayeredDevice`].
pub trait Layer: Send + Sync {
    /// Starts a batch on the device below, or completes it without.
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket;

    /// Waits for a batch.
    fn wait<D: Device + ?Sized>(&self, below: &D, ticket: Ticket) -> Vec<Completion> {
        below.wait(ticket)
    }

    /// Notes that a thread reached a crash point.
    fn reached(&self, _point: CrashPoint) {}
}

/// A device with a layer above it; everything else is that of the device below.
pub struct LayeredDevice<L, D: ?Sized = dyn Device> {
    below: Arc<D>,
    layer: L,
}

impl<L, D: ?Sized> LayeredDevice<L, D> {
    /// Puts a layer on a device.
    pub fn on_device(below: Arc<D>, layer: L) -> Self {
        Self { below, layer }
    }

    /// Returns the device below.
    pub fn below(&self) -> &Arc<D> {
        &self.below
    }

    /// Returns the layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

impl<L: Layer, D: Device + ?Sized> Device for LayeredDevice<L, D> {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn name(&self) -> &str {
        self.below.name()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn mark_closing(&self) {
        self.below.mark_closing();
    }

    fn reached(&self, point: CrashPoint) {
        self.layer.reached(point);
        self.below.reached(point);
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.layer.submit(&*self.below, batch)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.layer.wait(&*self.below, ticket)
    }

    fn is_ready(&self, ticket: &Ticket) -> bool {
        self.below.is_ready(ticket)
    }
}
