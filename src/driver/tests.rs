//! The loop over a store that the test holds still: what is answered, when, and in which batches.
