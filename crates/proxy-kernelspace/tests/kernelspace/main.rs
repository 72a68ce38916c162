//! Mode kernelspace with HNS in memory.

mod example;
mod facts;
mod laws;
mod node;
mod orphans;
mod pods;
mod script;
mod surplus;
