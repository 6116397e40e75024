package node

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/probe"
)

// hookTimeout bounds a single request of an HTTP or TCP hook; commands and sleeps last as long as ctx.
const hookTimeout = 30 * time.Second

// hook runs a lifecycle hook to its end.
func (a *Agent) hook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, h *corev1.LifecycleHandler, podIPs []string) error {
	name := machine.FullName(pod)
	target := probe.Target{Container: c}
	if len(podIPs) > 0 {
		target.PodIP = podIPs[0]
	}
	switch {
	case h.Exec != nil:
		out, err := a.exec(ctx, id, h.Exec.Command, 0)
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) for Container %q in Pod %q failed - error: %w, message: %q", h.Exec.Command, c.Name, name, err, out) //nolint:staticcheck // the words users know
		}
	case h.HTTPGet != nil:
		req, err := probe.Request(ctx, h.HTTPGet, target, "kube-lifecycle/1.36")
		if err == nil {
			err = probe.Hook(req, hookTimeout)
		}
		if err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %w", h.HTTPGet.Path, c.Name, name, err) //nolint:staticcheck // as above
		}
	case h.Sleep != nil:
		timer := a.cfg.Clock.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	case h.TCPSocket != nil:
		port, err := probe.Port(h.TCPSocket.Port, c)
		if err != nil {
			return err
		}
		address := target.PodIP
		if h.TCPSocket.Host != "" {
			address = h.TCPSocket.Host
		}
		conn, err := (&net.Dialer{Timeout: hookTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
		if err != nil {
			return fmt.Errorf("TCP lifecycle hook for Container %q in Pod %q failed - error: %w", c.Name, name, err)
		}
		return conn.Close()
	default:
		return fmt.Errorf("the lifecycle hook of container %q has no handler", c.Name)
	}
	return nil
}

// exec runs a command in a container and answers what it wrote.
func (a *Agent) exec(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, err := a.cfg.Runtime.ExecSync(ctx, id, cmd, timeout)
	return append(stdout, stderr...), err
}
