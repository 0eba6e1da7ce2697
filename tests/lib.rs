//! What crosses two programs, and the stand-ins.
