//! Who is let in, and with which rights: users of the server's ACL.

mod logins;
mod profiles;
