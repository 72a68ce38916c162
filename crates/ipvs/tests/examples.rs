//! Output of the examples.

use vipline_ipvs::{Connections, Destination, Table};

#[allow(dead_code, reason = "the test calls what `main` prints")]
#[path = "../examples/ipvsadm-ln.rs"]
mod ipvsadm_ln;

const TABLE: &str = "\
-A -t 10.0.0.1:80 -s wrr -p 100 -M 255.255.0.0
-a -t 10.0.0.1:80 -r 10.1.0.1:8080 -m -w 3
-a -t 10.0.0.1:80 -r 10.1.0.2:80 -g -w 0
-A -t [fd00::1]:80 -s mh -b mh-port
-a -t [fd00::1]:80 -r [fd00::2]:80 -i -w 1
-A -u 10.0.0.1:53 -s rr -o
-A --sctp-service 10.0.0.1:99 -s lc
-A -f 7 -6 -s sed -p 360
";

#[test]
fn ipvsadm_ln_prints_the_table_like_ipvsadm() {
    let table: Table = TABLE.parse().unwrap();
    let mut text = String::new();
    for server in table.servers() {
        text += &ipvsadm_ln::server_line(server);
        for real in table.destinations(&server.service) {
            let connections = Connections {
                active: 12,
                inactive: 3,
                persistent: 0,
            };
            let destination = Destination::new(*real).with_connections(connections);
            text += &ipvsadm_ln::destination_line(&destination);
        }
    }
    let expected = "\
TCP  10.0.0.1:80 wrr persistent 100 mask 255.255.0.0
  -> 10.1.0.1:8080                Masq    3      12         3         
  -> 10.1.0.2:80                  Route   0      12         3         
TCP  [fd00::1]:80 mh (mh-port)
  -> [fd00::2]:80                 Tunnel  1      12         3         
UDP  10.0.0.1:53 rr ops
SCTP 10.0.0.1:99 lc
FWM  7 IPv6 sed persistent 360
";
    assert_eq!(text, expected);
}
