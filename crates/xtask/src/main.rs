//! Tasks of the Vipline workspace: demo, test, ci, bench, fuzz, tidy, bless.
fn main() {}
