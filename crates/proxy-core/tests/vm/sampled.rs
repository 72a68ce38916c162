//! Random packets through a kernel with IPVS, compared with the evaluation of its state.

use crate::rules::Rules;
use crate::sample::compare;
use crate::stage::config;

#[test]
fn evaluations_of_mode_ipvs_agree_with_traffic() {
    let line = compare(Rules::Ipvs, config(Rules::Ipvs), 0, 3, 200);
    testkit::figures!("{line}");
}
