//! Targets that few rules have: `linux/netfilter/xt_*.h`.

use ipnet::IpNet;

use super::matches::Structure;
use super::structure::{Reader, Writer};
use crate::Family;
use crate::targets::{
    Audit, AuditType, Connsecmark, Dnpt, Ecn, Idletimer, Rateest, Snpt, Synproxy, Target,
    TcpOptions, Tcpoptstrip, times,
};

/// Length of a pointer of the kernel.
const POINTER: usize = 8;
/// Length of a label: `MAX_IDLETIMER_LABEL_SIZE`.
const LABEL: usize = 28;
/// Length of the name of an estimator: `IFNAMSIZ`.
const ESTIMATOR: usize = 16;
/// `IPT_ECN_OP_SET_ECE` and `IPT_ECN_OP_SET_CWR`.
const REMOVE_ECN: u8 = 0x30;
/// Exponent of the shortest interval of an estimator.
const SHORTEST: i8 = -2;
/// Number of words of the bitmap of TCP options.
const WORDS: usize = 8;

// Options of `struct xt_synproxy_info`.
const MSS: u8 = 1;
const WSCALE: u8 = 2;
const SACK: u8 = 4;
const TIMESTAMP: u8 = 8;
const ECN: u8 = 0x10;

/// Returns the structure of a target. Returns `None` if it is not supported.
pub(super) fn encode(target: &Target<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match target {
        Target::Audit(Audit { ty }) => {
            let ty = match (*ty)? {
                AuditType::Accept => 0,
                AuditType::Drop => 1,
                AuditType::Reject => 2,
            };
            ("AUDIT", 0, out.u8(ty).finish())
        }
        Target::Connsecmark(it) => {
            let mode = if it.save { 1 } else { 2 };
            ("CONNSECMARK", 0, out.u8(mode).finish())
        }
        Target::Dnpt(it) => ("DNPT", 0, prefixes(it.source, it.destination)?.finish()),
        Target::Snpt(it) => ("SNPT", 0, prefixes(it.source, it.destination)?.finish()),
        Target::Ecn(Ecn { tcp_remove: true }) if family == Family::V4 => {
            ("ECN", 0, out.u8(REMOVE_ECN).zeros(2).finish())
        }
        Target::Idletimer(it) => {
            let out = out.u32(it.timeout?).text(it.label.as_deref()?, LABEL)?;
            let out = out.u8(it.send_nl_msg.into()).u8(it.alarm.into());
            ("IDLETIMER", 1, out.zeros(6 + POINTER).finish())
        }
        Target::Rateest(it) => {
            let (interval, log) = it.exponents()?;
            let out = out.text(it.name.as_deref()?, ESTIMATOR)?;
            let interval = i8::try_from(interval).ok()? + SHORTEST;
            let out = out.bytes(&interval.to_ne_bytes()).u8(log);
            ("RATEEST", 0, out.zeros(6 + POINTER).finish())
        }
        Target::Synproxy(it) => ("SYNPROXY", 0, synproxy(it).finish()),
        Target::Tcpoptstrip(Tcpoptstrip { options }) => {
            let mut words = [0_u32; WORDS];
            for option in options.as_ref().map_or(&[][..], TcpOptions::get) {
                words[usize::from(option / 32)] |= 1 << (option % 32);
            }
            let out = words.iter().fold(out, |out, word| out.u32(*word));
            ("TCPOPTSTRIP", 0, out.finish())
        }
        _ => return None,
    })
}

/// Returns the target of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    reader: &mut Reader<'_>,
) -> Option<Target<'static>> {
    Some(match (name, revision) {
        ("AUDIT", 0) => {
            let types = [AuditType::Accept, AuditType::Drop, AuditType::Reject];
            let ty = Some(*types.get(usize::from(reader.u8()?))?);
            Audit { ty }.into()
        }
        ("CONNSECMARK", 0) => {
            let mode = reader.u8()?;
            Connsecmark {
                save: mode == 1,
                restore: mode == 2,
            }
            .into()
        }
        ("DNPT", 0) => {
            let [source, destination] = read_prefixes(reader)?;
            Dnpt {
                source,
                destination,
            }
            .into()
        }
        ("SNPT", 0) => {
            let [source, destination] = read_prefixes(reader)?;
            Snpt {
                source,
                destination,
            }
            .into()
        }
        ("ECN", 0) => Ecn {
            tcp_remove: reader.u8()? == REMOVE_ECN,
        }
        .into(),
        ("IDLETIMER", 1) => {
            let timeout = reader.u32()?;
            let label = reader.text(LABEL)?.to_owned();
            let [send_nl_msg, alarm] = reader.array()?.map(|byte: u8| byte != 0);
            Idletimer {
                timeout: Some(timeout),
                label: Some(label.into()),
                alarm,
                send_nl_msg,
            }
            .into()
        }
        ("RATEEST", 0) => {
            let name = reader.text(ESTIMATOR)?.to_owned();
            let interval = i8::from_ne_bytes(reader.array()?).checked_sub(SHORTEST)?;
            let exponents = (u8::try_from(interval).ok()?, reader.u8()?);
            let (interval, average) = times(exponents)?;
            Rateest {
                name: Some(name.into()),
                interval: Some(interval),
                average: Some(average),
            }
            .into()
        }
        ("SYNPROXY", 0) => read_synproxy(reader)?.into(),
        ("TCPOPTSTRIP", 0) => read_options(reader)?.into(),
        _ => return None,
    })
}

/// Writes `struct ip6t_npt_tginfo`.
fn prefixes(source: Option<IpNet>, destination: Option<IpNet>) -> Option<Writer> {
    let (Some(IpNet::V6(source)), Some(IpNet::V6(destination))) = (source, destination) else {
        return None;
    };
    let out = Writer::default().bytes(&source.addr().octets());
    let out = out.bytes(&destination.addr().octets());
    let out = out.u8(source.prefix_len()).u8(destination.prefix_len());
    Some(out.zeros(2))
}

fn read_prefixes(reader: &mut Reader<'_>) -> Option<[Option<IpNet>; 2]> {
    let addresses = [reader.address(Family::V6)?, reader.address(Family::V6)?];
    let lengths: [u8; 2] = reader.array()?;
    let network = |at: usize| IpNet::new(addresses[at], lengths[at]).ok();
    Some([network(0), network(1)])
}

/// Writes `struct xt_synproxy_info`.
fn synproxy(it: &Synproxy) -> Writer {
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    let options = flag(it.mss.is_some(), MSS)
        | flag(it.wscale.is_some(), WSCALE)
        | flag(it.sack_perm, SACK)
        | flag(it.timestamp, TIMESTAMP)
        | flag(it.ecn, ECN);
    let out = Writer::default().u8(options).u8(it.wscale.unwrap_or(0));
    out.u16(it.mss.unwrap_or(0))
}

fn read_synproxy(reader: &mut Reader<'_>) -> Option<Synproxy> {
    let (options, wscale, mss) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let has = |flag: u8| options & flag != 0;
    Some(Synproxy {
        sack_perm: has(SACK),
        timestamp: has(TIMESTAMP),
        wscale: has(WSCALE).then_some(wscale),
        mss: has(MSS).then_some(mss),
        ecn: has(ECN),
    })
}

/// Reads `struct xt_tcpoptstrip_target_info`.
fn read_options(reader: &mut Reader<'_>) -> Option<Tcpoptstrip> {
    let mut options = Vec::new();
    for word in 0..8 {
        let bits = reader.u32()?;
        let set = (0..32).filter(|bit| bits >> bit & 1 != 0);
        options.extend(set.map(|bit| word * 32 + bit));
    }
    let options = match options.is_empty() {
        true => None,
        false => Some(TcpOptions::new(options)?),
    };
    Some(Tcpoptstrip { options })
}
