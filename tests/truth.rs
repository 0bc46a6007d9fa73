//! Truth tests: what benchmesh reports, held against something independent, each with its tolerance.

mod support;

mod truth {
    mod counts;
    mod cpu;
    mod disk;
    mod latency;
    mod link;
    mod once;
}
