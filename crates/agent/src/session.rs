//! temporary
mod backoff;
