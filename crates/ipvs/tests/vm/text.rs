//! Compatibility of the text format with `ipvsadm` in both directions.

use vipline_ipvs::Table;

use crate::{check, compare, ipvsadm, ipvsadm_reading, with_client};

/// A table with all kinds of servers.
const TABLE: &str = "\
-A -t 10.0.0.1:80 -s mh -p 100 -b mh-port
-a -t 10.0.0.1:80 -r 10.1.0.1:8080 -m -w 3 -x 20 -y 10
-a -t 10.0.0.1:80 -r 10.1.0.2:80 -g -w 0
-A -t [fd00::1]:80 -s wlc -p 360 -M 64
-a -t [fd00::1]:80 -r [fd00::2]:80 -m -w 1
-A -u 10.0.0.1:53 -s sh -o -b sh-fallback,sh-port
-a -u 10.0.0.1:53 -r 10.1.0.2:53 -i -w 1 --tun-type ipip
-a -u 10.0.0.1:53 -r 10.1.0.3:53 -i -w 1 --tun-type gue --tun-port 6080 --tun-remcsum
-a -u 10.0.0.1:53 -r 10.1.0.4:53 -i -w 1 --tun-type gre --tun-csum
-A -u 10.0.0.1:5060 -s rr -p 100 -M 255.255.0.0 --pe sip
-A --sctp-service 10.0.0.1:99 -s rr -b flag-1,flag-3
-A -f 7 -s rr
-A -f 7 -6 -s sed
-a -f 7 -6 -r [fd00::2]:80 -m -w 1
";

#[test]
fn a_table_added_by_ipvsadm_prints_as_the_same_text() {
    with_client(|client| {
        for line in TABLE.lines() {
            ipvsadm(line);
        }
        let table: Table = TABLE.parse().unwrap();
        compare(client, &table);
        assert_eq!(client.dump().unwrap().to_string(), table.to_string());
    });
}

#[test]
fn ipvsadm_restores_printed_tables() {
    let table: Table = TABLE.parse().unwrap();
    let mut text = String::new();
    with_client(|client| {
        check(client, &table);
        text = client.dump().unwrap().to_string();
    });
    with_client(|client| {
        ipvsadm_reading("-R", &text);
        compare(client, &table);
    });
    // The output of ipvsadm parses to the same table, except for thresholds.
    with_client(|client| {
        let plain: Table = TABLE.replace(" -x 20 -y 10", "").parse().unwrap();
        check(client, &plain);
        assert_eq!(ipvsadm("-Sn").parse::<Table>().unwrap(), plain);
    });
}

#[test]
fn the_example_prints_what_ipvsadm_prints() {
    with_client(|client| {
        check(client, &TABLE.parse().unwrap());
        let lines = |text: &str| -> Vec<String> {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let printed = crate::ipvsadm_ln::list(client).unwrap();
        assert_eq!(lines(&printed), lines(&ipvsadm("-Ln")));
    });
}

#[test]
fn only_ipvsadm_replaces_the_port_without_masquerading() {
    let line = "-a -t 10.0.0.1:80 -r 10.1.0.2:8080 -g -w 1";
    let server = "-A -t 10.0.0.1:80 -s rr";
    with_client(|client| {
        let table: Table = format!("{server}\n{line}").parse().unwrap();
        check(client, &table);
        ipvsadm("-C");
        ipvsadm(server);
        ipvsadm(line);
        let made = format!("{server}\n{}", line.replace("8080", "80"));
        compare(client, &made.parse().unwrap());
    });
}

#[test]
fn the_example_drains_a_server_and_removes_it() {
    with_client(|_| {
        let mut out = Vec::new();
        crate::balancer::run(&mut out).unwrap();
        let expected = include_str!("../examples/balancer.txt");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    });
}
