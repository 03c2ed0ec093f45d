//! `fairlane doctor --store DIR`.
