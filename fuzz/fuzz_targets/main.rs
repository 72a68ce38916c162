//! All fuzz targets in one program. libFuzzer has its `main`.
#![no_main]

use fuzz as _;
