//! The daemon in the sandbox: files, executions, probe
