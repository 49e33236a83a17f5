//! FUSE requests that no kernel would send.

use userbtrfs_fuse::{InitFlags, Opcode, Operation, parse};

/// Parses a message with eight bytes of negotiated flags before it: unchanged, and with a correct
/// length and kind, since a fuzzer rarely guesses them.
pub(crate) fn request(input: &[u8]) {
    let Some((flags, message)) = input.split_first_chunk::<8>() else { return };
    let agreed = InitFlags::from_bits_retain(u64::from_le_bytes(*flags));
    exercise(message, agreed);
    let mut sound = message.to_vec();
    let length = u32::try_from(sound.len()).unwrap_or(u32::MAX);
    let Some((header, _)) = sound.split_first_chunk_mut::<8>() else { return };
    let kind = Opcode::ALL[usize::from(header[4]) % Opcode::ALL.len()];
    let [length, kind] = [length, kind.number()].map(u32::to_le_bytes);
    header[..4].copy_from_slice(&length);
    header[4..].copy_from_slice(&kind);
    exercise(&sound, agreed);
}

fn exercise(message: &[u8], agreed: InitFlags) {
    if let Ok((_, Operation::Forget(nodes))) = parse(message, agreed) {
        let mut count = 0;
        nodes.for_each(|_, _| count += 1);
        assert!(count * 16 <= message.len());
    }
}
