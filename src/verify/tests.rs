//! The judgement as a whole: what is accepted, what is refused and with which words.
