//! Matches of rates, counts and times: `linux/netfilter/xt_*.h`.

use std::net::IpAddr;

use ipnet::IpNet;

use super::matches::Structure;
use super::structure::{Reader, Writer};
use crate::Family;
use crate::direction::Direction;
use crate::matches::{
    Connbytes, ConnbytesDirection, ConnbytesMode, Connlimit, CountRange, Date, Hashlimit,
    HashlimitMode, HashlimitRate, Match, MonthDays, Quota, Rateest, RateestComparison, RateestUnit,
    Time, TimeOfDay, WeekDays,
};
use crate::negatable::Negatable;

/// Length of the name of a hash table: `NAME_MAX`.
const TABLE: usize = 255;
/// Length of the name of an estimator: `IFNAMSIZ`.
const ESTIMATOR: usize = 16;
/// Length of a pointer of the kernel.
const POINTER: usize = 8;
/// Default interval of garbage collections in milliseconds.
const GC_INTERVAL: u32 = 1000;

// Bits of `mode` in `struct hashlimit_cfg3`.
const INVERT: u32 = 1 << 4;
const BYTES: u32 = 1 << 5;
const RATE_MATCH: u32 = 1 << 6;

/// Returns the structure of a match. Returns `None` if it is not supported.
pub(super) fn encode(one: &Match<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match one {
        Match::Connbytes(it) => ("connbytes", 0, connbytes(it)?.finish()),
        Match::Connlimit(it) => ("connlimit", 1, connlimit(it, family)?.finish()),
        Match::Hashlimit(it) => ("hashlimit", 3, hashlimit(it, family)?.finish()),
        Match::Quota(Quota { quota }) => {
            let quota = quota.as_ref()?;
            let out = out.u32(quota.is_negated().into()).zeros(4);
            ("quota", 0, out.u64(*quota.value()).zeros(POINTER).finish())
        }
        Match::Rateest(it) => ("rateest", 0, rateest(it)?.finish()),
        Match::Time(it) => ("time", 0, time(it).finish()),
        _ => return None,
    })
}

/// Returns the match of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    reader: &mut Reader<'_>,
    family: Family,
) -> Option<Match<'static>> {
    Some(match (name, revision) {
        ("connbytes", 0) => read_connbytes(reader)?.into(),
        ("connlimit", 1) => read_connlimit(reader, family)?.into(),
        ("hashlimit", 3) => read_hashlimit(reader, family)?.into(),
        ("quota", 0) => {
            let is_negated = reader.u32()? != 0;
            reader.bytes(4)?;
            let quota = Some(Negatable::new(is_negated, reader.u64()?));
            Quota { quota }.into()
        }
        ("rateest", 0) => read_rateest(reader)?.into(),
        ("time", 0) => read_time(reader)?.into(),
        _ => return None,
    })
}

const MODES: [ConnbytesMode; 3] = [
    ConnbytesMode::Packets,
    ConnbytesMode::Bytes,
    ConnbytesMode::AveragePacket,
];
const DIRECTIONS: [ConnbytesDirection; 3] = [
    ConnbytesDirection::Original,
    ConnbytesDirection::Reply,
    ConnbytesDirection::Both,
];

/// Returns the index of a value.
fn index<T: PartialEq>(all: &[T], wanted: &T) -> Option<u8> {
    let found = all.iter().position(|one| one == wanted)?;
    u8::try_from(found).ok()
}

/// Writes `struct xt_connbytes_info`. A negated range has its ends swapped.
fn connbytes(it: &Connbytes) -> Option<Writer> {
    let count = it.count.as_ref()?;
    let CountRange { first, last } = *count.value();
    let last = last.unwrap_or(u64::MAX);
    let out = Writer::default();
    let out = match count {
        Negatable::Is(_) => out.u64(first).u64(last),
        Negatable::Not(_) => out.u64(last).u64(first),
    };
    let out = out.u8(index(&MODES, it.mode.as_ref()?)?);
    Some(out.u8(index(&DIRECTIONS, it.direction.as_ref()?)?))
}

fn read_connbytes(reader: &mut Reader<'_>) -> Option<Connbytes> {
    let (from, to) = (reader.u64()?, reader.u64()?);
    let [mode, direction] = reader.array()?;
    let range = CountRange {
        first: from.min(to),
        last: Some(from.max(to)).filter(|last| *last != u64::MAX),
    };
    Some(Connbytes {
        count: Some(Negatable::new(from > to, range)),
        mode: Some(*MODES.get(usize::from(mode))?),
        direction: Some(*DIRECTIONS.get(usize::from(direction))?),
    })
}

/// Returns the mask of a prefix length.
fn netmask(len: u8, family: Family) -> Option<IpAddr> {
    let any = match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    };
    Some(IpNet::new(any, len).ok()?.netmask())
}

/// Returns the full prefix length.
fn max_len(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

/// Writes `struct xt_connlimit_info`.
fn connlimit(it: &Connlimit, family: Family) -> Option<Writer> {
    let upto = it.upto.as_ref()?;
    let out = Writer::default();
    let out = match it.prefix_len {
        Some(len) => out.address(netmask(len, family)?, family)?,
        None => out.bytes(&[u8::MAX; 16]),
    };
    let is_destination = it.direction == Some(Direction::Destination);
    let flags = u32::from(!upto.is_negated()) | u32::from(is_destination) << 1;
    Some(out.u32(*upto.value()).u32(flags).zeros(POINTER))
}

fn read_connlimit(reader: &mut Reader<'_>, family: Family) -> Option<Connlimit> {
    let mask: [u8; 16] = reader.array()?;
    let (limit, flags) = (reader.u32()?, reader.u32()?);
    let len = match mask {
        [u8::MAX, ..] if mask == [u8::MAX; 16] => None,
        mask => {
            let mask = super::structure::address_of(mask, family);
            Some(ipnet::ip_mask_to_prefix(mask).ok()?)
        }
    };
    Some(Connlimit {
        upto: Some(Negatable::new(flags & 1 == 0, limit)),
        prefix_len: len,
        direction: Some(match flags & 2 {
            0 => Direction::Source,
            _ => Direction::Destination,
        }),
    })
}

/// Writes `struct xt_hashlimit_mtinfo3`.
fn hashlimit(it: &Hashlimit<'_>, family: Family) -> Option<Writer> {
    let rate = it.upto.as_ref()?;
    let cost = rate.value().cost();
    let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
    let mode = u32::from(it.mode.bits())
        | flag(rate.is_negated(), INVERT)
        | flag(rate.value().is_of_bytes(), BYTES)
        | flag(it.rate_match, RATE_MATCH);
    let interval = match it.rate_match {
        true => it.rate_interval.unwrap_or(1),
        false => 0,
    };
    let out = Writer::default()
        .text(it.name.as_deref()?, TABLE)?
        .zeros(1)
        .u64(cost)
        .u64(it.stored_burst()?)
        .u32(mode)
        .u32(it.htable_size.unwrap_or(0))
        .u32(it.htable_max.unwrap_or(0))
        .u32(it.htable_gcinterval.unwrap_or(GC_INTERVAL))
        .u32(it.expire_in_kernel()?)
        .u32(interval)
        .u8(it.srcmask.unwrap_or_else(|| max_len(family)))
        .u8(it.dstmask.unwrap_or_else(|| max_len(family)));
    Some(out.zeros(6 + POINTER))
}

fn read_hashlimit(reader: &mut Reader<'_>, family: Family) -> Option<Hashlimit<'static>> {
    let name = reader.text(TABLE)?.to_owned();
    reader.bytes(1)?;
    let (cost, burst) = (reader.u64()?, reader.u64()?);
    let mode = reader.u32()?;
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = reader.u32()?;
    }
    let [size, max, gc_interval, expire, interval] = numbers;
    let masks: [u8; 2] = reader.array()?;
    let [srcmask, dstmask] = masks.map(|len| Some(len).filter(|len| *len != max_len(family)));
    let rate = HashlimitRate::of_cost(cost, mode & BYTES != 0)?;
    let is_set = |number: &u32| *number != 0;
    let fields = u8::try_from(mode & !(INVERT | BYTES | RATE_MATCH)).ok()?;
    let mut limit = Hashlimit {
        upto: Some(Negatable::new(mode & INVERT != 0, rate)),
        burst: Some(rate.burst_of_stored(burst)?),
        mode: HashlimitMode::from_bits(fields)?,
        name: Some(name.into()),
        htable_size: Some(size).filter(is_set),
        htable_max: Some(max).filter(is_set),
        htable_gcinterval: Some(gc_interval).filter(|it| *it != GC_INTERVAL),
        htable_expire: Some(expire),
        srcmask,
        dstmask,
        rate_match: mode & RATE_MATCH != 0,
        rate_interval: Some(interval).filter(is_set),
    };
    limit.normalize();
    Some(limit)
}

/// Comparisons in the order of `enum xt_rateest_match_mode`, from 1.
const COMPARISONS: [RateestComparison; 3] = [
    RateestComparison::Equal,
    RateestComparison::Less,
    RateestComparison::Greater,
];

// enum xt_rateest_match_flags
const NEGATED: u16 = 1;
const CONSTANT: u16 = 2;
const RELATIVE: u16 = 4;
const DELTA: u16 = 8;
const OF_BYTES: u16 = 16;
const OF_PACKETS: u16 = 32;

/// Writes `struct xt_rateest_match_info`.
fn rateest(it: &Rateest<'_>) -> Option<Writer> {
    let comparison = it.comparison.as_ref()?;
    let is_of_bytes = it.unit? == RateestUnit::Bytes;
    let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
    let flags = flag(comparison.is_negated(), NEGATED)
        | flag(it.second.is_none(), CONSTANT)
        | flag(it.second.is_some(), RELATIVE)
        | flag(it.delta, DELTA)
        | if is_of_bytes { OF_BYTES } else { OF_PACKETS };
    let out = Writer::default()
        .text(it.name.as_deref()?, ESTIMATOR)?
        .text(it.second.as_deref().unwrap_or_default(), ESTIMATOR)?
        .u16(flags)
        .u16(u16::from(index(&COMPARISONS, comparison.value())?) + 1);
    let out = match is_of_bytes {
        true => out.u32(it.limit1).zeros(4).u32(it.limit2).zeros(4),
        false => out.zeros(4).u32(it.limit1).zeros(4).u32(it.limit2),
    };
    Some(out.zeros(4 + 2 * POINTER))
}

fn read_rateest(reader: &mut Reader<'_>) -> Option<Rateest<'static>> {
    let [name, second] = [(); 2].map(|()| reader.text(ESTIMATOR).map(str::to_owned));
    let (flags, mode) = (reader.u16()?, reader.u16()?);
    let comparison = usize::from(mode).checked_sub(1)?;
    let comparison = *COMPARISONS.get(comparison)?;
    let mut limits = [0; 4];
    for limit in &mut limits {
        *limit = reader.u32()?;
    }
    let [bytes1, packets1, bytes2, packets2] = limits;
    let (unit, limit1, limit2) = match flags & (OF_BYTES | OF_PACKETS) {
        OF_BYTES => (RateestUnit::Bytes, bytes1, bytes2),
        OF_PACKETS => (RateestUnit::Packets, packets1, packets2),
        _ => return None,
    };
    Some(Rateest {
        delta: flags & DELTA != 0,
        name: Some(name?.into()),
        second: second.filter(|_| flags & RELATIVE != 0).map(Into::into),
        comparison: Some(Negatable::new(flags & NEGATED != 0, comparison)),
        unit: Some(unit),
        limit1,
        limit2,
    })
    .filter(Rateest::is_printed_exactly)
}

/// Writes `struct xt_time_info`.
fn time(it: &Time) -> Writer {
    let seconds = |time: Option<TimeOfDay>, default| time.map_or(default, TimeOfDay::seconds);
    let flags = u8::from(it.kernel_time_zone) | u8::from(it.contiguous) << 1;
    Writer::default()
        .u32(it.date_start.map_or(0, |Date(date)| date))
        .u32(it.date_stop.unwrap_or(Date::MAX).0)
        .u32(seconds(it.start, 0))
        .u32(seconds(it.stop, Time::LAST_SECOND))
        .u32(it.month_days.map_or(!1, MonthDays::bits))
        .u8(it.week_days.map_or(!1, WeekDays::bits))
        .u8(flags)
}

fn read_time(reader: &mut Reader<'_>) -> Option<Time> {
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = reader.u32()?;
    }
    let [date_start, date_stop, start, stop, month_days] = numbers;
    let [week_days, flags] = reader.array()?;
    let of_day = |seconds: u32| TimeOfDay::new(seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut time = Time {
        start: Some(of_day(start)?),
        stop: Some(of_day(stop)?),
        month_days: Some(MonthDays::from_bits(month_days)?).filter(|days| days.bits() != !1),
        week_days: Some(WeekDays::from_bits(week_days)?).filter(|days| days.bits() != !1),
        date_start: Some(Date(date_start)),
        date_stop: Some(Date(date_stop)),
        kernel_time_zone: flags & 1 != 0,
        contiguous: flags & 2 != 0,
    };
    time.normalize();
    Some(time)
}
