//! Schedulers with a hash table: `ip_vs_sh.c`, `ip_vs_dh.c` and `ip_vs_mh.c`.

use std::net::IpAddr;

use vipline_ipvs::Flags;

use super::balancer::Packet;
use super::scheduling::{Available, Selection};

/// Number of bits and buckets of `sh` and `dh`: `CONFIG_IP_VS_SH_TAB_BITS`.
const BITS: u32 = 8;
const BUCKETS: u32 = 1 << BITS;
/// `GOLDEN_RATIO_32` of `linux/hash.h`.
const GOLDEN_RATIO: u32 = 0x61c8_8647;

/// Number of buckets of `mh`, and the bits of its largest weight:
/// `CONFIG_IP_VS_MH_TAB_INDEX` is 12.
const MAGLEV: u32 = 4093;
const MAGLEV_BITS: u32 = 6;
/// Keys of `mh`.
const FIRST_KEY: u64 = 2_654_435_761;
const SECOND_KEY: u64 = 2_654_446_892;

/// Returns an address as one number: words of IPv6 are folded.
fn fold(addr: IpAddr) -> u32 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits(),
        IpAddr::V6(addr) => {
            let words = addr.octets();
            let words = words.chunks_exact(4).filter_map(|word| word.first_chunk());
            words.fold(0, |all, word| all ^ u32::from_be_bytes(*word))
        }
    }
}

/// `hash_32` of `linux/hash.h`.
fn hash_32(value: u32) -> u32 {
    value.wrapping_mul(GOLDEN_RATIO) >> (u32::BITS - BITS)
}

/// Returns the real server of a client: scheduler `sh`.
///
/// Each real server fills as many buckets as its weight, at least one.
pub(super) fn source(flags: Flags, reals: &[Available<'_>], packet: &Packet) -> Option<usize> {
    let counts = reals.iter().map(|it| it.weight().max(1));
    let buckets = reals.iter().zip(counts).flat_map(|(real, count)| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        std::iter::repeat_n(real, count.min(BUCKETS as usize))
    });
    let buckets: Vec<_> = buckets.collect();
    let port = hashed_port(flags, Flags::SH_PORT, packet);
    let hash = hash_32(port.wrapping_add(fold(packet.source.ip())));
    let bucket = |offset: u32| {
        let place = (offset.wrapping_add(hash) % BUCKETS) as usize;
        buckets.get(place % buckets.len().max(1)).copied()
    };
    let first = bucket(0)?;
    if first.is_available {
        return Some(first.index);
    }
    if !flags.contains(Flags::SH_FALLBACK) {
        return None;
    }
    let mut others = (0..BUCKETS).map_while(|offset| bucket((offset + hash) % BUCKETS));
    others.find(|it| it.is_available).map(|it| it.index)
}

fn hashed_port(flags: Flags, wanted: Flags, packet: &Packet) -> u32 {
    match flags.contains(wanted) {
        true => packet.source.port().into(),
        false => 0,
    }
}

/// Returns the real server of a destination: scheduler `dh`.
pub(super) fn destination(reals: &[Available<'_>], packet: &Packet) -> Option<usize> {
    let bucket = hash_32(fold(packet.destination.ip())) as usize;
    let real = reals.get(bucket % reals.len().max(1))?;
    real.is_available.then_some(real.index)
}

/// Returns the real server of a client: scheduler `mh`.
pub(super) fn maglev(flags: Flags, reals: &[Available<'_>], packet: &Packet) -> Selection {
    // The table keeps the last weight of a real server whose weight became zero.
    if reals.iter().any(|it| it.weight() == 0) || reals.len() > MAGLEV as usize {
        return Selection::Possible;
    }
    let table = maglev_table(reals);
    let port = hashed_port(flags, Flags::MH_PORT, packet);
    let address = fold(packet.source.ip());
    let bucket = |offset: u32| {
        let value = offset.wrapping_add(port).wrapping_add(address);
        let hash = hsiphash(value, FIRST_KEY) % MAGLEV;
        let place = table.get(hash as usize).copied().flatten();
        (hash, place.and_then(|place| reals.get(place)))
    };
    let (hash, first) = bucket(0);
    let Some(first) = first else {
        return Selection::None;
    };
    if first.is_available {
        return Some(first.index).into();
    }
    if !flags.contains(Flags::MH_FALLBACK) {
        return Selection::None;
    }
    let mut others = (0..MAGLEV).map_while(|offset| bucket((offset + hash) % MAGLEV).1);
    let found = others.find(|it| it.is_available);
    found.map(|it| it.index).into()
}

/// Fills the table: real servers take turns, each according to its weight.
fn maglev_table(reals: &[Available<'_>]) -> Vec<Option<usize>> {
    let weights = || reals.iter().map(Available::weight);
    let divisor = weights().fold(0, common_divisor).max(1);
    let highest = weights().max().unwrap_or(0) / divisor;
    let bits = u64::BITS - highest.leading_zeros();
    let shift = bits.saturating_sub(MAGLEV_BITS);
    let mut turns: Vec<(u32, u32, u64)> = reals
        .iter()
        .map(|it| {
            let value = fold(it.real.server.address).wrapping_add(it.real.server.port.into());
            let place = hsiphash(value, FIRST_KEY) % MAGLEV;
            let skip = hsiphash(value, SECOND_KEY) % (MAGLEV - 1) + 1;
            let turns = (it.weight() / divisor) >> shift;
            (place, skip, turns.max(1))
        })
        .collect();
    let mut table = vec![None; MAGLEV as usize];
    let mut filled = 0;
    while filled < MAGLEV && !turns.is_empty() {
        for (index, (place, skip, count)) in turns.iter_mut().enumerate() {
            for _ in 0..*count {
                if filled == MAGLEV {
                    return table;
                }
                while table.get(*place as usize).is_some_and(Option::is_some) {
                    *place = (*place + *skip) % MAGLEV;
                }
                if let Some(bucket) = table.get_mut(*place as usize) {
                    *bucket = Some(index);
                }
                filled += 1;
            }
        }
    }
    table
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// `hsiphash` of one word on a 64-bit kernel: SipHash-1-3, folded to 32 bits.
fn hsiphash(value: u32, key: u64) -> u32 {
    let mut state = [
        0x736f_6d65_7073_6575 ^ key,
        0x646f_7261_6e64_6f6d ^ key,
        0x6c79_6765_6e65_7261 ^ key,
        0x7465_6462_7974_6573 ^ key,
    ];
    // The length is in the highest byte.
    let block = 4 << 56 | u64::from(value);
    state[3] ^= block;
    round(&mut state);
    state[0] ^= block;
    state[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut state);
    }
    let [a, b, c, d] = state;
    (a ^ b ^ c ^ d) as u32
}

/// A round of SipHash.
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}
