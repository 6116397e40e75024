// Package authz decides what a user may do.
//
// [New] is the whole decision: members of system:masters may do anything; then each configured authorizer is asked in order, the
// first that allows or denies wins; nobody's opinion is a refusal. [RBAC] is the role-based authorizer: an index of roles by name
// and of bindings by subject, kept current by a feed of changes, so that a decision looks only at the rules which its user has.
//
// Guarantees: a decision is made on one state of the index; it costs time in the rules of the user, not in the number of roles,
// bindings or users. Rules only ever allow. A binding whose role is missing grants nothing.
//
// Everything is safe for concurrent use. Objects fed in are shared and never changed.
package authz
