//! Decides a call: a policy and a call in; allow, ask or deny and the reason out
