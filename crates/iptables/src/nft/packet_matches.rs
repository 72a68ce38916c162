//! Matches of packet contents, sockets and interfaces: `linux/netfilter/xt_*.h`.

use super::matches::Structure;
use super::structure::{Reader, Writer};
use crate::field::Text;
use crate::matches::{
    Algorithm, Bpf, BpfInstruction, Bytecode, Cgroup, Cluster, ClusterNodes, ConnectionLabel,
    Connlabel, Cpu, Dccp, DccpTypes, Devgroup, Ecn, HashSeed, Match, Osf, Pattern, Realm,
    StringMatch, U32, U32Operation, U32Test, U32Tests,
};
use crate::negatable::Negatable;
use crate::number::{Masked, MaskedMatch, Ports};

/// Length of a pointer of the kernel.
const POINTER: usize = 8;
/// Maximum number of instructions: `XT_BPF_MAX_NUM_INSTR`.
const INSTRUCTIONS: usize = 64;
/// Length of the path of a control group: `XT_CGROUP_PATH_MAX`.
const PATH: usize = 512;
/// Length of the name of an operating system: `MAXGENRELEN`.
const GENRE: usize = 32;
/// Length of the name of an algorithm: `XT_STRING_MAX_ALGO_NAME_SIZE`.
const ALGORITHM: usize = 16;
/// Length of a pattern: `XT_STRING_MAX_PATTERN_SIZE`.
const PATTERN: usize = 128;
/// Number of tests, and of operations and ranges of each: `XT_U32_MAXSIZE` and one.
const TESTS: usize = 11;
/// Length of `struct xt_u32_test`.
const TEST: usize = 180;

// Flags of `struct xt_ecn_info`.
const ECN_IP: u8 = 1;
const ECN_ECE: u8 = 0x10;
const ECN_CWR: u8 = 0x20;

/// Returns the structure of a match. Returns `None` if it is not supported.
pub(super) fn encode(one: &Match<'_>) -> Option<Structure> {
    let out = Writer::default();
    Some(match one {
        Match::Bpf(it) => ("bpf", 1, bpf(it)?.finish()),
        Match::Cgroup(it) => ("cgroup", 2, cgroup(it)?.finish()),
        Match::Cluster(it) => {
            let local = it.local.as_ref()?;
            let out = out.u32(it.total?).u32(local.value().0);
            let out = out.u32(it.seed?.0).u32(local.is_negated().into());
            ("cluster", 0, out.finish())
        }
        Match::Connlabel(Connlabel { label, set }) => {
            let label = label.as_ref()?;
            let options = u16::from(label.is_negated()) | u16::from(*set) << 1;
            let out = out.u16(label.value().get().into()).u16(options);
            ("connlabel", 0, out.finish())
        }
        Match::Cpu(Cpu { cpu }) => {
            let cpu = cpu.as_ref()?;
            let out = out.u32(*cpu.value()).u32(cpu.is_negated().into());
            ("cpu", 0, out.finish())
        }
        Match::Dccp(it) => ("dccp", 0, dccp(it).finish()),
        Match::Devgroup(it) => ("devgroup", 0, devgroup(it).finish()),
        Match::Ecn(it) => ("ecn", 0, ecn(it).finish()),
        Match::Osf(it) => ("osf", 0, osf(it)?.finish()),
        Match::Realm(Realm { realm }) => {
            let realm = realm.as_ref()?;
            let MaskedMatch(Masked { value, mask }) = *realm.value();
            let out = out.u32(value).u32(mask).u8(realm.is_negated().into());
            ("realm", 0, out.finish())
        }
        Match::StringMatch(it) => ("string", 1, string(it)?.finish()),
        Match::U32(U32 { tests }) => ("u32", 0, u32_tests(tests.as_ref()?)?.finish()),
        _ => return None,
    })
}

/// Returns the match of a structure. Returns `None` if it is not supported.
pub(super) fn decode(name: &str, revision: u32, reader: &mut Reader<'_>) -> Option<Match<'static>> {
    Some(match (name, revision) {
        ("bpf", 1) => read_bpf(reader)?.into(),
        ("cgroup", 2) => read_cgroup(reader)?.into(),
        ("cluster", 0) => {
            let (total, local) = (reader.u32()?, ClusterNodes(reader.u32()?));
            let seed = HashSeed(reader.u32()?);
            Cluster {
                local: Some(Negatable::new(reader.u32()? & 1 != 0, local)),
                total: Some(total),
                seed: Some(seed),
            }
            .into()
        }
        ("connlabel", 0) => {
            let (label, options) = (reader.u16()?, reader.u16()?);
            let label = ConnectionLabel::new(u8::try_from(label).ok()?)?;
            let label = Some(Negatable::new(options & 1 != 0, label));
            let set = options & 2 != 0;
            Connlabel { label, set }.into()
        }
        ("cpu", 0) => {
            let cpu = reader.u32()?;
            let cpu = Some(Negatable::new(reader.u32()? != 0, cpu));
            Cpu { cpu }.into()
        }
        ("dccp", 0) => read_dccp(reader)?.into(),
        ("devgroup", 0) => read_devgroup(reader)?.into(),
        ("ecn", 0) => read_ecn(reader)?.into(),
        ("osf", 0) => read_osf(reader)?.into(),
        ("realm", 0) => {
            let (value, mask) = (reader.u32()?, reader.u32()?);
            let realm = MaskedMatch(Masked { value, mask });
            let realm = Some(Negatable::new(reader.u8()? != 0, realm));
            Realm { realm }.into()
        }
        ("string", 1) => read_string(reader)?.into(),
        ("u32", 0) => {
            let tests = Some(read_u32_tests(reader)?);
            U32 { tests }.into()
        }
        _ => return None,
    })
}

/// Writes `struct xt_bpf_info_v1`. Returns `None` for a pinned program: the structure
/// contains a file descriptor.
fn bpf(it: &Bpf<'_>) -> Option<Writer> {
    let program = it.bytecode.as_ref()?.get();
    let out = Writer::default().u16(0).u16(program.len().try_into().ok()?);
    let mut out = out.zeros(4);
    for one in program {
        out = out.u16(one.code).u8(one.jump_true).u8(one.jump_false);
        out = out.u32(one.operand);
    }
    let unused = INSTRUCTIONS.checked_sub(program.len())?;
    Some(out.zeros(unused * 8 + POINTER))
}

fn read_bpf(reader: &mut Reader<'_>) -> Option<Bpf<'static>> {
    let (mode, count) = (reader.u16()?, reader.u16()?);
    reader.bytes(4)?;
    if mode != 0 {
        return None;
    }
    let mut instruction = || {
        let code = reader.u16()?;
        let [jump_true, jump_false] = reader.array()?;
        Some(BpfInstruction {
            code,
            jump_true,
            jump_false,
            operand: reader.u32()?,
        })
    };
    let program: Option<Vec<_>> = (0..count).map(|_| instruction()).collect();
    Some(Bpf {
        bytecode: Some(Bytecode::new(program?)?),
        object_pinned: None,
    })
}

/// Writes `struct xt_cgroup_info_v2`.
fn cgroup(it: &Cgroup<'_>) -> Option<Writer> {
    let [has_path, has_class] = [it.path.is_some(), it.class_id.is_some()].map(u8::from);
    let not_path = it.path.as_ref().is_some_and(Negatable::is_negated);
    let not_class = it.class_id.as_ref().is_some_and(Negatable::is_negated);
    let out = Writer::default().u8(has_path).u8(has_class);
    let out = out.u8(not_path.into()).u8(not_class.into());
    let out = match (&it.path, it.class_id) {
        (Some(path), None) => out.text(&path.value().0, PATH)?,
        (None, Some(class)) => out.u32(*class.value()).zeros(PATH - 4),
        _ => return None,
    };
    Some(out.zeros(4 + POINTER))
}

fn read_cgroup(reader: &mut Reader<'_>) -> Option<Cgroup<'static>> {
    let [has_path, has_class, not_path, not_class] = reader.array()?.map(|byte: u8| byte != 0);
    let (mut path, mut class_id) = (None, None);
    match (has_path, has_class) {
        (true, false) => {
            let text = Text(reader.text(PATH)?.to_owned().into());
            path = Some(Negatable::new(not_path, text));
        }
        (false, true) => class_id = Some(Negatable::new(not_class, reader.u32()?)),
        _ => return None,
    }
    Some(Cgroup { path, class_id })
}

fn inverted<T>(condition: Option<&Negatable<T>>, bit: u16) -> u16 {
    match condition {
        Some(Negatable::Not(_)) => bit,
        _ => 0,
    }
}

fn present<T>(condition: Option<&T>, bit: u16) -> u16 {
    if condition.is_some() { bit } else { 0 }
}

/// Bits of the types without name, except the first one.
const OTHER_INVALID: u16 = 0xf800;

/// Returns the mask of packet types. `INVALID` has the bits of all types without name.
fn type_mask(types: DccpTypes) -> u16 {
    match types.contains(DccpTypes::INVALID) {
        true => types.bits() | OTHER_INVALID,
        false => types.bits(),
    }
}

/// Writes `struct xt_dccp_info`.
fn dccp(it: &Dccp) -> Writer {
    let ports = |ports: Option<Negatable<Ports>>| {
        ports.map_or(Ports { first: 0, last: 0 }, |ports| *ports.value())
    };
    let (sport, dport) = (it.sport.as_ref(), it.dport.as_ref());
    let (types, option) = (it.types.as_ref(), it.option.as_ref());
    let used = present(sport, 1) | present(dport, 2) | present(types, 4) | present(option, 8);
    let invert = inverted(sport, 1) | inverted(dport, 2) | inverted(types, 4) | inverted(option, 8);
    let mut out = Writer::default();
    for Ports { first, last } in [ports(it.dport), ports(it.sport)] {
        out = out.u16(first).u16(last);
    }
    out.u16(used)
        .u16(invert)
        .u16(types.map_or(0, |types| type_mask(*types.value())))
        .u8(option.map_or(0, |option| *option.value()))
}

fn read_dccp(reader: &mut Reader<'_>) -> Option<Dccp> {
    let mut ports = || {
        let (first, last) = (reader.u16()?, reader.u16()?);
        Some(Ports { first, last })
    };
    let (dport, sport) = (ports()?, ports()?);
    let (used, invert) = (reader.u16()?, reader.u16()?);
    let (types, option) = (reader.u16()?, reader.u8()?);
    let negated = |bit| (used & bit != 0).then_some(invert & bit != 0);
    let types = match negated(4) {
        Some(is_negated) => {
            let types = DccpTypes::from_bits(types & !OTHER_INVALID)?;
            Some(Negatable::new(is_negated, types))
        }
        None => None,
    };
    Some(Dccp {
        sport: negated(1).map(|it| Negatable::new(it, sport)),
        dport: negated(2).map(|it| Negatable::new(it, dport)),
        types,
        option: negated(8).map(|it| Negatable::new(it, option)),
    })
}

/// Writes `struct xt_devgroup_info`.
fn devgroup(it: &Devgroup) -> Writer {
    let (source, destination) = (it.source.as_ref(), it.destination.as_ref());
    let flags = present(source, 1)
        | inverted(source, 2)
        | present(destination, 4)
        | inverted(destination, 8);
    let mut out = Writer::default().u32(flags.into());
    for group in [source, destination] {
        let none = Masked { value: 0, mask: 0 };
        let Masked { value, mask } = group.map_or(none, |group| group.value().0);
        out = out.u32(value).u32(mask);
    }
    out
}

fn read_devgroup(reader: &mut Reader<'_>) -> Option<Devgroup> {
    let flags = reader.u32()?;
    let mut group = |bit: u32| {
        let (value, mask) = (reader.u32()?, reader.u32()?);
        let group = MaskedMatch(Masked { value, mask });
        let is_negated = flags & bit << 1 != 0;
        Some((flags & bit != 0).then(|| Negatable::new(is_negated, group)))
    };
    Some(Devgroup {
        source: group(1)?,
        destination: group(4)?,
    })
}

/// Writes `struct xt_ecn_info`.
fn ecn(it: &Ecn) -> Writer {
    let flags = |flag: fn(Option<bool>) -> bool| {
        let ece = it.tcp_ece.as_ref().map(Negatable::is_negated);
        let cwr = it.tcp_cwr.as_ref().map(Negatable::is_negated);
        let ect = it.ip_ect.as_ref().map(Negatable::is_negated);
        let all = [(ece, ECN_ECE), (cwr, ECN_CWR), (ect, ECN_IP)];
        let set = all.into_iter().filter(|(one, _)| flag(*one));
        set.fold(0, |bits, (_, bit)| bits | bit)
    };
    let out = Writer::default().u8(flags(|one| one.is_some()));
    let out = out.u8(flags(|one| one == Some(true)));
    out.u8(it.ip_ect.map_or(0, |ect| *ect.value())).zeros(1)
}

fn read_ecn(reader: &mut Reader<'_>) -> Option<Ecn> {
    let [used, invert, ect, _] = reader.array()?;
    let negated = |bit: u8| (used & bit != 0).then_some(invert & bit != 0);
    Some(Ecn {
        tcp_ece: negated(ECN_ECE).map(|it| Negatable::new(it, ())),
        tcp_cwr: negated(ECN_CWR).map(|it| Negatable::new(it, ())),
        ip_ect: negated(ECN_IP).map(|it| Negatable::new(it, ect)),
    })
}

/// Writes `struct xt_osf_info`.
fn osf(it: &Osf<'_>) -> Option<Writer> {
    let genre = it.genre.as_ref()?;
    let flags =
        present(it.ttl.as_ref(), 2) | present(it.log.as_ref(), 4) | inverted(Some(genre), 8);
    let out = Writer::default().text(genre.value(), GENRE)?;
    let out = out.u32(genre.value().len().try_into().ok()?);
    let out = out.u32(flags.into());
    Some(
        out.u32(it.log.unwrap_or(0).into())
            .u32(it.ttl.unwrap_or(0).into()),
    )
}

fn read_osf(reader: &mut Reader<'_>) -> Option<Osf<'static>> {
    let genre = reader.text(GENRE)?.to_owned();
    reader.u32()?;
    let flags = reader.u32()?;
    let [log, ttl] = [reader.u32()?, reader.u32()?].map(u8::try_from);
    Some(Osf {
        genre: Some(Negatable::new(flags & 8 != 0, genre.into())),
        ttl: (flags & 2 != 0).then_some(ttl.ok()?),
        log: (flags & 4 != 0).then_some(log.ok()?),
    })
}

/// Writes `struct xt_string_info`.
fn string(it: &StringMatch) -> Option<Writer> {
    let pattern = it.pattern.as_ref()?;
    let bytes = pattern.value().get();
    let flags = u8::from(pattern.is_negated()) | u8::from(it.ignore_case) << 1;
    let out = Writer::default()
        .u16(it.from.unwrap_or(0))
        .u16(it.to.unwrap_or(u16::MAX))
        .text(it.algorithm?.name(), ALGORITHM)?
        .padded(bytes, PATTERN)?
        .u8(bytes.len().try_into().ok()?)
        .u8(flags);
    Some(out.zeros(2 + POINTER))
}

fn read_string(reader: &mut Reader<'_>) -> Option<StringMatch> {
    let (from, to) = (reader.u16()?, reader.u16()?);
    let algorithm = reader.text(ALGORITHM)?;
    let algorithms = [Algorithm::BoyerMoore, Algorithm::KnuthMorrisPratt];
    let algorithm = algorithms.into_iter().find(|it| it.name() == algorithm)?;
    let bytes = reader.bytes(PATTERN)?;
    let [len, flags] = reader.array()?;
    let pattern = Pattern::new(bytes.get(..usize::from(len))?)?;
    Some(StringMatch {
        pattern: Some(Negatable::new(flags & 1 != 0, pattern)),
        algorithm: Some(algorithm),
        from: Some(from).filter(|from| *from != 0),
        to: Some(to).filter(|to| *to != u16::MAX),
        ignore_case: flags & 2 != 0,
    })
}

/// Operations in the order of `enum xt_u32_ops`.
const OPERATIONS: [U32Operation; 4] = [
    U32Operation::And,
    U32Operation::LeftShift,
    U32Operation::RightShift,
    U32Operation::At,
];

/// Writes `struct xt_u32`.
fn u32_tests(tests: &Negatable<U32Tests>) -> Option<Writer> {
    let all = tests.value().get();
    let mut out = Writer::default();
    for test in all {
        out = out.u32(test.offset).zeros(4);
        for (operation, operand) in &test.operations {
            let operation = OPERATIONS.iter().position(|it| it == operation)?;
            out = out.u32(*operand).u8(operation.try_into().ok()?).zeros(3);
        }
        let numbers = test.operations.len() + 1;
        out = out.zeros(TESTS.checked_sub(numbers)? * 8);
        for (first, last) in &test.ranges {
            out = out.u32(*first).u32(*last);
        }
        out = out.zeros(TESTS.checked_sub(test.ranges.len())? * 8);
        let [numbers, ranges] = [numbers, test.ranges.len()].map(u8::try_from);
        out = out.u8(numbers.ok()?).u8(ranges.ok()?).zeros(2);
    }
    let out = out.zeros(TESTS.checked_sub(all.len())? * TEST);
    Some(
        out.u8(all.len().try_into().ok()?)
            .u8(tests.is_negated().into()),
    )
}

fn read_u32_tests(reader: &mut Reader<'_>) -> Option<Negatable<U32Tests>> {
    let mut all = Vec::new();
    for _ in 0..TESTS {
        all.push(reader.bytes(TEST)?);
    }
    let [count, invert] = reader.array()?;
    let all = all.get(..usize::from(count))?;
    let tests: Option<Vec<_>> = all.iter().map(|test| read_u32_test(test)).collect();
    Some(Negatable::new(invert != 0, U32Tests::new(tests?)?))
}

fn read_u32_test(bytes: &[u8]) -> Option<U32Test> {
    let mut reader = Reader::new(bytes);
    let mut pairs = || {
        let pair = |_| {
            let first = reader.u32()?;
            Some((first, reader.array::<4>()?))
        };
        (0..TESTS).map(pair).collect::<Option<Vec<_>>>()
    };
    let (location, values) = (pairs()?, pairs()?);
    let [numbers, ranges] = reader.array()?.map(|count: u8| usize::from(count));
    let [(offset, _), operations @ ..] = location.get(..numbers)? else {
        return None;
    };
    let operation = |(operand, [operation, ..]): &(u32, [u8; 4])| {
        Some((*OPERATIONS.get(usize::from(*operation))?, *operand))
    };
    let range = |(first, last): &(u32, [u8; 4])| (*first, u32::from_ne_bytes(*last));
    Some(U32Test {
        offset: *offset,
        operations: operations.iter().map(operation).collect::<Option<_>>()?,
        ranges: values.get(..ranges)?.iter().map(range).collect(),
    })
}
