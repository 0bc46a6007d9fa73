//! temporary
pub mod command;
