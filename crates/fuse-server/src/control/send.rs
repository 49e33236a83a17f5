//! Sending to a client without waiting for it.

use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// A stream of parts to one client. Sending never waits.
#[derive(Debug)]
pub struct ReplyStream(UnixStream);

/// The outcome of sending a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The part was sent.
    Whole,
    /// The part is lost: the client has not read the earlier ones yet.
    Lost,
    /// The client has disconnected, or reads no more: this part and all later ones are lost.
    Gone,
}

/// Sends a part, if that does not block.
pub(super) fn send_part(client: &UnixStream, part: &[u8]) -> Sent {
    match send(client, part, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) if sent == part.len() => Sent::Whole,
        Err(Errno::AGAIN) => Sent::Lost,
        // The rest of a part would pass for another one, so nothing may follow.
        Ok(_) | Err(_) => {
            let _ = client.shutdown(std::net::Shutdown::Both);
            Sent::Gone
        }
    }
}

impl ReplyStream {
    pub(super) fn new(client: UnixStream) -> Self {
        Self(client)
    }

    /// Sends a part, if that does not block.
    pub fn send(&self, part: &[u8]) -> Sent {
        send_part(&self.0, part)
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn reader_of_a_stream_reaches_the_end_after_a_part_that_was_cut() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_mins(5))).unwrap();
        let stream = ReplyStream(ours);
        assert_eq!(stream.send(b"first"), Sent::Whole);
        let large = vec![b'x'; 64 << 20];
        assert_eq!(stream.send(&large), Sent::Gone);
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).unwrap();
        assert!(all.starts_with(b"first") && all.len() < large.len(), "{}", all.len());
        assert_eq!(stream.send(b"later"), Sent::Gone);
    }
}
