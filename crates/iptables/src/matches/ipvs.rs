//! `-m ipvs`: IPVS connections.

use std::fmt;

use ipnet::IpNet;

use super::CtDirection;
use crate::Protocol;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer, at, position};
use crate::options::address::{Bare, parse_prefix};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::protocol;
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};

/// Matches packets of IPVS connections: `-m ipvs --vaddr 10.96.0.1 --vport 80`.
///
/// All conditions except [`property`](Self::property) match only packets that IPVS
/// handles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ipvs {
    /// Whether IPVS handles the packet. Not supported together with other conditions.
    pub property: Option<Negatable<()>>,
    /// Protocol of the virtual server.
    pub protocol: Option<Negatable<Protocol>>,
    /// Network of the virtual server's address.
    pub address: Option<Negatable<IpNet>>,
    /// Port of the virtual server.
    pub port: Option<Negatable<u16>>,
    /// Direction of the packet.
    pub direction: Option<CtDirection>,
    /// Forwarding method of the connection.
    pub method: Option<Negatable<IpvsMethod>>,
    /// Virtual port of the connection that controls this one, such as 21 for FTP.
    pub control_port: Option<Negatable<u16>>,
}

/// Forwarding method of an IPVS connection: `IP_VS_CONN_F_*` of `linux/ip_vs.h`.
///
/// Exhaustive: the match has three methods.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IpvsMethod {
    /// Direct routing.
    Gate,
    /// Tunneling.
    Ipip,
    /// Masquerading.
    Masq,
}

impl IpvsMethod {
    const ALL: [Self; 3] = [Self::Gate, Self::Ipip, Self::Masq];

    fn name(self) -> &'static str {
        match self {
            Self::Gate => "GATE",
            Self::Ipip => "IPIP",
            Self::Masq => "MASQ",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|method| method.name().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for IpvsMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Ipvs {
    /// Matches packets of connections to a virtual server.
    pub fn server(protocol: Protocol, address: impl Into<IpNet>, port: u16) -> Self {
        Self {
            protocol: Some(Negatable::Is(protocol)),
            address: Some(Negatable::Is(address.into())),
            port: Some(Negatable::Is(port)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for Ipvs {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--ipvs",
            "--vproto",
            "--vaddr",
            "--vport",
            "--vdir",
            "--vmethod",
            "--vportctl",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        let is_complete = self.property.is_some();
        let is_ours = match option {
            "--ipvs" => {
                values.expect_index(0)?;
                set_once(&mut self.property, Negatable::new(values.negated(), ()))
            }
            "--vproto" => set_once(&mut self.protocol, values.negatable(protocol::parse)?),
            "--vaddr" => set_once(&mut self.address, values.negatable(parse_prefix)?),
            "--vport" => set_once(&mut self.port, values.negatable(number::parse_port)?),
            "--vdir" => set_once(&mut self.direction, values.parse(CtDirection::parse)?),
            "--vmethod" => set_once(&mut self.method, values.negatable(IpvsMethod::parse)?),
            "--vportctl" => set_once(&mut self.control_port, values.negatable(number::parse_as)?),
            _ => Ok(false),
        }?;
        match is_ours && is_complete {
            true => Err(Unsupported),
            false => Ok(is_ours),
        }
    }
}

impl fmt::Display for Ipvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m ipvs")?;
        if let Some(property) = &self.property {
            write!(f, " {}--ipvs", property.bang())?;
        }
        if let Some(protocol) = self.protocol {
            protocol.map(|protocol| protocol.0).write(f, "--vproto")?;
        }
        if let Some(address) = self.address {
            address.map(Bare).write(f, "--vaddr")?;
        }
        if let Some(port) = &self.port {
            port.write(f, "--vport")?;
        }
        if let Some(direction) = &self.direction {
            write!(f, " --vdir {direction}")?;
        }
        if let Some(method) = &self.method {
            method.write(f, "--vmethod")?;
        }
        if let Some(port) = &self.control_port {
            port.write(f, "--vportctl")?;
        }
        Ok(())
    }
}

// Flags `bitmask` and `invert` of `struct xt_ipvs_mtinfo`.
const XT_IPVS_IPVS_PROPERTY: u8 = 1 << 0;
const XT_IPVS_PROTO: u8 = 1 << 1;
const XT_IPVS_VADDR: u8 = 1 << 2;
const XT_IPVS_VPORT: u8 = 1 << 3;
const XT_IPVS_DIR: u8 = 1 << 4;
const XT_IPVS_METHOD: u8 = 1 << 5;
const XT_IPVS_VPORTCTL: u8 = 1 << 6;

/// `IP_VS_CONN_F_MASQ`, `IP_VS_CONN_F_LOCALNODE`, `IP_VS_CONN_F_TUNNEL` and
/// `IP_VS_CONN_F_DROUTE` of `linux/ip_vs.h`. iptables has no name for the second one.
const METHODS: [Option<IpvsMethod>; 4] = [
    Some(IpvsMethod::Masq),
    None,
    Some(IpvsMethod::Ipip),
    Some(IpvsMethod::Gate),
];

/// `struct xt_ipvs_mtinfo`.
impl Structure for Ipvs {
    const NAME: &'static str = "ipvs";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        conditions.put(XT_IPVS_IPVS_PROPERTY, &self.property);
        out.network(conditions.put(XT_IPVS_VADDR, &self.address))?;
        out.be16(conditions.put(XT_IPVS_VPORT, &self.port).unwrap_or(0));
        let protocol = conditions.put(XT_IPVS_PROTO, &self.protocol);
        out.u8(protocol.map_or(0, |Protocol(number)| number));
        out.u8(match conditions.put(XT_IPVS_METHOD, &self.method) {
            Some(method) => position(&METHODS, &Some(method))?,
            None => 0,
        });
        let control_port = conditions.put(XT_IPVS_VPORTCTL, &self.control_port);
        out.be16(control_port.unwrap_or(0));
        let is_reply = |direction| Negatable::new(direction == CtDirection::Reply, ());
        conditions.put(XT_IPVS_DIR, &self.direction.map(is_reply));
        // All other conditions imply this one.
        conditions.put_flag(XT_IPVS_IPVS_PROPERTY, conditions.used != 0);
        out.u8(conditions.negated).u8(conditions.used);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let network = reader.network()??;
        let (port, protocol) = (reader.be16()?, Protocol(reader.u8()?));
        let (method, control_port) = (reader.u8()?, reader.be16()?);
        let (negated, used) = (reader.u8()?, reader.u8()?);
        let conditions = Conditions { used, negated };
        let property = conditions.get(XT_IPVS_IPVS_PROPERTY, ());
        let direction = conditions.get(XT_IPVS_DIR, ());
        Some(Self {
            property: property.filter(|_| used == XT_IPVS_IPVS_PROPERTY),
            protocol: conditions.get(XT_IPVS_PROTO, protocol),
            address: conditions.get(XT_IPVS_VADDR, network),
            port: conditions.get(XT_IPVS_VPORT, port),
            direction: direction.map(|direction| match direction {
                Negatable::Is(()) => CtDirection::Original,
                Negatable::Not(()) => CtDirection::Reply,
            }),
            method: conditions.get(XT_IPVS_METHOD, at(&METHODS, method)??),
            control_port: conditions.get(XT_IPVS_VPORTCTL, control_port),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use crate::Rule;
    use crate::extensions::structure::{decoded, encoded};
    use crate::targets::Target;

    #[test]
    fn ipvs_is_parsed_and_printed() {
        let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
        let all = Ipvs {
            property: None,
            protocol: Some(Negatable::Not(Protocol(200))),
            address: Some(Negatable::Not("10.96.0.0/12".parse().unwrap())),
            port: Some(Negatable::Not(80)),
            direction: Some(CtDirection::Reply),
            method: Some(Negatable::Not(IpvsMethod::Masq)),
            control_port: Some(Negatable::Is(21)),
        };
        let property = |property| Ipvs {
            property: Some(property),
            ..Ipvs::default()
        };
        let table = [
            ("-m ipvs --ipvs", property(Negatable::Is(()))),
            ("-m ipvs ! --ipvs", property(Negatable::Not(()))),
            (
                "-m ipvs --vproto 6 --vaddr 203.0.113.9 --vport 80",
                Ipvs::server(Protocol::TCP, address("203.0.113.9"), 80),
            ),
            (
                "-m ipvs --vproto 17 --vaddr fd00::9 --vport 53",
                Ipvs::server(Protocol::UDP, address("fd00::9"), 53),
            ),
            (
                "-m ipvs ! --vproto 200 ! --vaddr 10.96.0.0/12 ! --vport 80 --vdir REPLY ! --vmethod MASQ --vportctl 21",
                all,
            ),
        ];
        for (text, ipvs) in table {
            let rule = Rule::new().with_match(ipvs);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let loose = Rule::parse("-m ipvs --vport 80 --vproto tcp --vmethod gate --vdir original");
        assert_eq!(
            loose.unwrap().to_string(),
            "-m ipvs --vproto 6 --vport 80 --vdir ORIGINAL --vmethod GATE"
        );
    }

    #[test]
    fn options_of_a_target_do_not_belong_to_the_match() {
        let rule = Rule::parse("-m ipvs --ipvs -j OTHER --a").unwrap();
        let ipvs = Ipvs {
            property: Some(Negatable::Is(())),
            ..Ipvs::default()
        };
        assert_eq!(rule.matches, [ipvs.into()]);
        assert_eq!(rule.target, Some(Target::Other("-j OTHER --a".into())));
    }

    #[test]
    fn services_and_host_bits_are_typed() {
        let text = "-m ipvs --vaddr 10.1.2.3/8 --vport http";
        let rule = Rule::parse(text).unwrap();
        assert_eq!(rule.to_string(), "-m ipvs --vaddr 10.1.2.3/8 --vport 80");
    }

    #[test]
    fn unsupported_conditions_are_preserved() {
        for text in [
            "-m ipvs",
            "-m ipvs --ipvs --vport 80",
            "-m ipvs --vport 80 --ipvs",
            "-m ipvs --vaddr 10.0.3.0/255.0.255.0",
            "-m ipvs --vport no-service",
            "-m ipvs --vmethod LOCAL",
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule.to_string(), text);
            let [super::super::Match::Other(_)] = &*rule.matches else {
                panic!("{rule:?}");
            };
        }
    }

    #[test]
    fn the_structure_has_the_layout_of_the_kernel() {
        let address: std::net::IpAddr = [203, 0, 113, 9].into();
        let mut ipvs = Ipvs::server(Protocol::TCP, address, 80);
        ipvs.direction = Some(CtDirection::Reply);
        ipvs.method = Some(Negatable::Not(IpvsMethod::Gate));
        let bytes = encoded(&ipvs, Family::V4).unwrap();
        let mut expected = vec![203, 0, 113, 9];
        expected.resize(16, 0);
        expected.extend([u8::MAX; 16]);
        expected.extend([0, 80, 6, 3, 0, 0, XT_IPVS_DIR | XT_IPVS_METHOD, 0b11_1111]);
        assert_eq!(*bytes, *expected);
        assert_eq!(decoded(&bytes, Family::V4), Some(ipvs.clone()));
        assert_eq!(encoded(&ipvs, Family::V6), None);
        assert_eq!(decoded::<Ipvs>(&bytes[..39], Family::V4), None);
    }

    #[test]
    fn a_negated_property_has_no_other_condition() {
        let ipvs = Ipvs {
            property: Some(Negatable::Not(())),
            ..Ipvs::default()
        };
        let bytes = encoded(&ipvs, Family::V6).unwrap();
        assert_eq!(
            bytes[32..],
            [
                0,
                0,
                0,
                0,
                0,
                0,
                XT_IPVS_IPVS_PROPERTY,
                XT_IPVS_IPVS_PROPERTY
            ]
        );
        assert_eq!(decoded(&bytes, Family::V6), Some(ipvs));
    }
}
