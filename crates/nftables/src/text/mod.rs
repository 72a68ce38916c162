//! The text of objects in nft syntax.

mod action;

mod context;

mod display;

mod expr;

mod listing;

mod literal;

mod load;

mod operation;

mod payload;

mod prefix;

mod script;

mod priority;

mod stateful;

#[cfg(test)]
mod tests;
