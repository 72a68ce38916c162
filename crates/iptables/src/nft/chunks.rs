//! Chunk types of SCTP in `struct xt_sctp_info`.

use super::structure::{Reader, Writer};
use crate::matches::{Chunk, Chunks, ChunksMode};

/// Length of `chunkmap`: a bit for each of 256 types, eight times repeated.
///
/// The header divides the number of types by the bytes, not the bits, of a word.
const MAP: usize = 256;
/// Number of entries of `flag_info`: `XT_NUM_SCTP_FLAGS`.
const FLAGS: usize = 4;
/// An unused entry of `flag_info`.
const UNUSED: [u8; 3] = [0xff, 0, 0];
/// Bits of a word of the map.
const WORD: u8 = 32;

fn mode_bit(mode: ChunksMode) -> u32 {
    match mode {
        ChunksMode::Any => 1,
        ChunksMode::All => 2,
        ChunksMode::Only => 4,
    }
}

/// Writes `chunkmap` to `flag_count`. Returns `None` for too many types with flags.
pub(super) fn encode(out: Writer, chunks: Option<&Chunks>) -> Option<Writer> {
    let mut map = [0_u32; MAP / 4];
    let mut flags = [UNUSED; FLAGS];
    let mut count = 0;
    let is_all = chunks.is_some_and(|it| it.chunks.len() == Chunk::NAMES.len());
    for chunk in chunks.into_iter().flat_map(|it| &it.chunks) {
        let (number, mask, set) = chunk.parts();
        map[usize::from(number / WORD)] |= 1 << (number % WORD);
        if mask != 0 {
            *flags.get_mut(count)? = [number, set, mask];
            count += 1;
        }
    }
    if is_all && count == 0 {
        map = [u32::MAX; MAP / 4];
    }
    let out = map.iter().fold(out, |out, word| out.u32(*word));
    let out = out.u32(chunks.map_or(0, |it| mode_bit(it.mode)));
    let out = flags.iter().fold(out, |out, entry| out.bytes(entry));
    Some(out.u32(u32::try_from(count).ok()?))
}

/// Reads `chunkmap` to `flag_count`. The inner value is `None` for unknown types.
pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Option<Chunks>> {
    let mut map = [0; MAP / 4];
    for word in &mut map {
        *word = reader.u32()?;
    }
    let mode = reader.u32()?;
    let mut flags = [UNUSED; FLAGS];
    for entry in &mut flags {
        *entry = reader.array()?;
    }
    let count = usize::try_from(reader.u32()?).ok()?;
    let flags = flags.get(..count)?;
    let is_all = map == [u32::MAX; MAP / 4];
    let types =
        (0..=u8::MAX).filter(|number| map[usize::from(number / WORD)] & 1 << (number % WORD) != 0);
    let chunk = |number| {
        let [_, set, mask] = flags
            .iter()
            .find(|[ty, ..]| *ty == number)
            .unwrap_or(&UNUSED);
        Chunk::from_parts((number, *mask, *set))
    };
    let chunks: Option<Vec<_>> = if is_all {
        Some(types.filter_map(chunk).collect())
    } else {
        types.map(chunk).collect()
    };
    let modes = [ChunksMode::Any, ChunksMode::All, ChunksMode::Only];
    let mode = modes.into_iter().find(|it| mode_bit(*it) == mode);
    Some(
        mode.zip(chunks)
            .map(|(mode, chunks)| Chunks { mode, chunks }),
    )
}
