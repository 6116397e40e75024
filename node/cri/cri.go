// Package cri connects the node agent to a container runtime that speaks the Container Runtime Interface v1 over a unix socket.
//
// A Conn satisfies both k8s.io/cri-api's RuntimeService and its ImageManagerService. Every call is bounded in time, except pulling an
// image and the event stream, which live as long as their context. The connection re-establishes itself: a runtime that restarts is
// reached again by the next call. Safe for concurrent use.
//
// It does not start a runtime (node/runtime does), and keeps no state of its own.
package cri

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// callTimeout bounds calls that only touch the runtime's own state.
	callTimeout = 2 * time.Minute
	// sandboxTimeout bounds the making of a sandbox, which may wait for network plugins.
	sandboxTimeout = 4 * time.Minute
	// maxMessage is the size limit of one answer; the kubelet uses the same, so runtimes are tested against it.
	maxMessage = 16 << 20
)

// Conn is a connection to one runtime.
type Conn struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
}

// Connect dials the runtime at endpoint ("unix:///run/x.sock" or a path) and asks for its version, so that a success means that it answers.
func Connect(ctx context.Context, endpoint string) (*Conn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	reconnect := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	c := &Conn{conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn)}
	if _, err := c.Version(ctx, "v1"); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("container runtime at %s does not answer CRI v1: %w", endpoint, err)
	}
	return c, nil
}

func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("container runtime endpoint %q: want unix:///absolute/path or /absolute/path", endpoint)
	}
	return path, nil
}

// Close ends the connection.
func (c *Conn) Close(context.Context) error { return c.conn.Close() }

func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
