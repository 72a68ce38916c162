//! Known and unknown properties of packets.

use vipline_nftables::expr::PayloadBase::{Link, Network, Other, Transport};

use super::*;
use crate::cause::Cause;

fn udp() -> Packet {
    Packet::udp(
        "10.0.0.1:1000".parse().unwrap(),
        "10.0.0.2:53".parse().unwrap(),
    )
}

#[test]
fn only_properties_that_were_set_are_known() {
    let packet = udp();
    let port = packet.read(Transport, 2, 2).unwrap();
    assert_eq!(port.as_deref(), Some(&[0, 53][..]));
    let addr = packet.read(Network, 12, 4).unwrap();
    assert_eq!(addr.as_deref(), Some(&[10, 0, 0, 1][..]));
    let cause = packet.read(Network, 8, 1).unwrap_err();
    assert_eq!(cause, Cause::unknown("byte 8 of the network header"));
    let cause = packet.read(Transport, 8, 1).unwrap_err();
    assert_eq!(cause, Cause::unknown("byte 8 of the transport header"));
    assert_eq!(packet.total_len(), None);
    assert_eq!(
        packet.read(Link, 0, 6),
        Ok(None),
        "no header before it is sent"
    );
    let received = packet.with_input("eth0");
    assert_eq!(
        received.read(Link, 0, 6),
        Err(Cause::unknown("link-layer header"))
    );
}

#[test]
fn a_payload_determines_the_length() {
    let packet = udp().with_payload(b"abc");
    assert_eq!(packet.total_len(), Some(31));
    let lengths = [(Network, 2), (Transport, 4)].map(|(base, at)| packet.read(base, at, 2));
    assert_eq!(lengths[0].as_ref().unwrap().as_deref(), Some(&[0, 31][..]));
    assert_eq!(lengths[1].as_ref().unwrap().as_deref(), Some(&[0, 11][..]));
    let inner = packet.read(Other(3), 0, 3).unwrap();
    assert_eq!(inner.as_deref(), Some(&b"abc"[..]));
    assert_eq!(packet.read(Transport, 9, 3), Ok(None), "beyond the end");
}

#[test]
fn a_translation_makes_checksums_unknown() {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 9, 9];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 53, 0, 8, 7, 7]);
    let mut packet = Packet::from_bytes(&bytes).unwrap();
    assert_eq!(packet.to_string(), "udp 10.0.0.1:1000 -> 10.0.0.2:53");
    assert!(packet.read(Network, 10, 2).is_ok());
    packet.set_destination("10.0.0.9".parse().unwrap());
    packet.set_source_port(None);
    assert_eq!(packet.to_string(), "udp 10.0.0.1:* -> 10.0.0.9:53");
    assert!(packet.read(Network, 10, 2).is_err());
    assert!(packet.read(Transport, 6, 2).is_err());
    assert!(packet.read(Transport, 0, 2).is_err());
}

#[test]
fn extension_headers_precede_the_transport_header() {
    let addr = |last: u8| [vec![0xfd; 15], vec![last]].concat();
    let fixed = |next: u8| [vec![0x60, 0, 0, 0, 0, 24, next, 64], addr(1), addr(2)].concat();
    let options = vec![44, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |offset: u8| vec![17, 0, offset, 1, 0, 0, 0, 7];
    let datagram = vec![3, 232, 0, 53, 0, 8, 0, 0];
    let bytes = [fixed(0), options.clone(), fragment(0), datagram.clone()].concat();
    let packet = Packet::from_bytes(&bytes).unwrap();
    assert_eq!((packet.protocol(), packet.source_port()), (17, Some(1000)));
    let later = [fixed(0), options, fragment(1), datagram].concat();
    let packet = Packet::from_bytes(&later).unwrap();
    assert_eq!((packet.protocol(), packet.source_port()), (17, None));
    assert_eq!(packet.read(Transport, 0, 2), Ok(None));
    for len in [0, 1, 39, 41, 49] {
        assert!(Packet::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn stores_stay_within_the_packet() {
    let mut packet = udp();
    assert_eq!(packet.overwrite(Transport, 2, &[0, 80]), Ok(true));
    assert_eq!(packet.destination_port(), Some(80));
    assert!(packet.overwrite(Transport, 8, &[1]).is_err(), "unknown end");
    let mut packet = udp().with_payload(b"");
    assert_eq!(packet.overwrite(Transport, 8, &[1]), Ok(false));
}
