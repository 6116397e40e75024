package kind

import "context"

// Via is how a proxy request asks to reach an object: https:name:8443 has Scheme "https" and Port "8443". Both may be empty.
type Via struct{ Scheme, Port string }

type viaKey struct{}

// WithVia returns a context for Connect of a [Sub] that is Named.
func WithVia(ctx context.Context, via Via) context.Context {
	return context.WithValue(ctx, viaKey{}, via)
}

// ViaOf is what WithVia put in, or nothing.
func ViaOf(ctx context.Context) Via {
	via, _ := ctx.Value(viaKey{}).(Via)
	return via
}

type dryKey struct{}

// WithDryRun returns a context for Answer of a [Def] that is only to say what it would answer.
func WithDryRun(ctx context.Context) context.Context { return context.WithValue(ctx, dryKey{}, true) }

// DryRun tells a context of WithDryRun.
func DryRun(ctx context.Context) bool {
	dry, _ := ctx.Value(dryKey{}).(bool)
	return dry
}
