//! Permission bits, and what a member may do in a channel.
//!
//! The order of overwrites is that of Discord's documentation, "Permission
//! Hierarchy": everyone, roles together, member; owner and administrators pass.

use crate::clock::Id;
use crate::world::{Channel, Guild};

/// Permission to add reactions.
pub const ADD_REACTIONS: u64 = 1 << 6;
/// All permissions.
pub const ADMINISTRATOR: u64 = 1 << 3;
/// Permission to see a channel.
pub const VIEW_CHANNEL: u64 = 1 << 10;
/// Permission to write in a channel.
pub const SEND_MESSAGES: u64 = 1 << 11;
/// Permission to attach files.
pub const ATTACH_FILES: u64 = 1 << 15;
/// Permission to read what was said before.
pub const READ_MESSAGE_HISTORY: u64 = 1 << 16;
/// Permission to notify everyone.
pub const MENTION_EVERYONE: u64 = 1 << 17;
/// Permission to archive and lock threads.
pub const MANAGE_THREADS: u64 = 1 << 34;
/// Permission to open threads.
pub const CREATE_PUBLIC_THREADS: u64 = 1 << 35;
/// Permission to write in threads.
pub const SEND_MESSAGES_IN_THREADS: u64 = 1 << 38;

/// What people of a new guild may do.
pub const EVERYONE: u64 = VIEW_CHANNEL
    | SEND_MESSAGES
    | READ_MESSAGE_HISTORY
    | ADD_REACTIONS
    | ATTACH_FILES
    | CREATE_PUBLIC_THREADS
    | SEND_MESSAGES_IN_THREADS;

/// What `user` may do in `channel` (for a thread: in its parent); 0 for one who
/// is no member.
pub fn of(guild: &Guild, channel: &Channel, user: Id) -> u64 {
    let Some(member) = guild.members.get(&user) else {
        return 0;
    };
    if guild.owner == user {
        return u64::MAX;
    }
    let everyone = guild
        .roles
        .get(&guild.id)
        .map_or(0, |role| role.permissions);
    let base = member
        .roles
        .iter()
        .filter_map(|id| guild.roles.get(id))
        .fold(everyone, |all, role| all | role.permissions);
    if base & ADMINISTRATOR != 0 {
        return u64::MAX;
    }
    let apply = |permissions: u64, deny: u64, allow: u64| (permissions & !deny) | allow;
    let mut permissions = base;
    if let Some(over) = channel.overwrites.iter().find(|over| over.id == guild.id) {
        permissions = apply(permissions, over.deny, over.allow);
    }
    let (mut deny, mut allow) = (0, 0);
    for over in channel
        .overwrites
        .iter()
        .filter(|over| member.roles.contains(&over.id))
    {
        deny |= over.deny;
        allow |= over.allow;
    }
    permissions = apply(permissions, deny, allow);
    if let Some(over) = channel.overwrites.iter().find(|over| over.id == user) {
        permissions = apply(permissions, over.deny, over.allow);
    }
    if permissions & VIEW_CHANNEL == 0 {
        0
    } else {
        permissions
    }
}
