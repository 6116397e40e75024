// Package probe asks a container how it is: by a command in it, by HTTP, TCP or gRPC. It is also what lifecycle hooks of those kinds run on.
//
// Check asks once. Run asks as a container's probe says, and reports what the answers amount to by the thresholds. Both only look: they start, stop
// and restart nothing. Each Run belongs to one container; any number may run at once.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/exec"
)

// Target is the container that is asked.
type Target struct {
	Container *corev1.Container
	PodIP     string
	// Exec runs a command in the container; output is what it wrote. A command that fails gives an exec.ExitError.
	Exec func(ctx context.Context, cmd []string, timeout time.Duration) (output []byte, err error)
}

// Answer is what one question gave.
type Answer int

// Warning counts as Good, but is worth an event.
const (
	Good Answer = iota
	Warning
	Bad
)

// maxOutput bounds what is kept of an answer's text.
const maxOutput = 10 << 10

// Check asks once. err means that the question could not be put; output is for people.
func Check(ctx context.Context, h *corev1.ProbeHandler, t Target, timeout time.Duration) (a Answer, output string, err error) {
	switch {
	case h.Exec != nil:
		return execute(ctx, h.Exec.Command, t, timeout)
	case h.HTTPGet != nil:
		req, err := Request(ctx, h.HTTPGet, t, "kube-probe/1.36")
		if err != nil {
			return Bad, "", err
		}
		return get(req, timeout)
	case h.TCPSocket != nil:
		port, err := Port(h.TCPSocket.Port, t.Container)
		if err != nil {
			return Bad, "", err
		}
		return connect(ctx, net.JoinHostPort(host(h.TCPSocket.Host, t.PodIP), port), timeout)
	case h.GRPC != nil:
		return health(ctx, h.GRPC, t.PodIP, timeout)
	}
	return Bad, "", errors.New("the probe has no handler")
}

func host(own, podIP string) string {
	if own != "" {
		return own
	}
	return podIP
}

func execute(ctx context.Context, cmd []string, t Target, timeout time.Duration) (Answer, string, error) {
	out, err := t.Exec(ctx, cmd, timeout)
	text := string(out[:min(len(out), maxOutput)])
	var exit exec.ExitError
	switch {
	case err == nil:
		return Good, text, nil
	case errors.As(err, &exit):
		return Bad, text, nil
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "timeout"), strings.Contains(err.Error(), "DeadlineExceeded"):
		return Bad, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(cmd, " "), timeout), nil
	}
	return Bad, text, err
}

// Port answers a port number, which may be the name of one of the container's ports.
func Port(p intstr.IntOrString, c *corev1.Container) (string, error) {
	n := p.IntValue()
	if p.Type == intstr.String && n == 0 {
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				n = int(cp.ContainerPort)
			}
		}
		if n == 0 {
			return "", fmt.Errorf("couldn't find port: %q in container %q", p.StrVal, c.Name)
		}
	}
	if n < 1 || n > 65535 {
		return "", fmt.Errorf("invalid port number: %v", n)
	}
	return strconv.Itoa(n), nil
}

// Request makes the request of an HTTP probe or hook.
func Request(ctx context.Context, h *corev1.HTTPGetAction, t Target, agent string) (*http.Request, error) {
	port, err := Port(h.Port, t.Container)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path}
	}
	scheme := strings.ToLower(string(h.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(host(h.Host, t.PodIP), port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range h.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
			continue
		}
		req.Header.Add(header.Name, header.Value)
	}
	setDefault(req.Header, "User-Agent", agent)
	setDefault(req.Header, "Accept", "*/*")
	return req, nil
}

// setDefault sets a header unless the user did. One that the user set to nothing is not sent.
func setDefault(h http.Header, name, value string) {
	switch got, set := h[http.CanonicalHeaderKey(name)]; {
	case !set:
		h.Set(name, value)
	case len(got) == 1 && got[0] == "" && name == "Accept":
		h.Del(name)
	}
}

// client follows redirects only on the same host, as documented, and trusts any certificate: it asks whether the container answers, not who it is.
func client(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
			DisableKeepAlives:  true,
			DisableCompression: true,
			Proxy:              nil,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

func get(req *http.Request, timeout time.Duration) (Answer, string, error) {
	res, err := client(timeout).Do(req)
	if err != nil {
		return Bad, err.Error(), nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	if err != nil {
		return Bad, err.Error(), nil
	}
	switch body := string(b); {
	case res.StatusCode >= 200 && res.StatusCode < 300:
		return Good, body, nil
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return Warning, "Probe terminated redirects, Response body: " + body, nil
	}
	return Bad, fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode), nil
}

// Hook performs the HTTP request of a lifecycle hook.
func Hook(req *http.Request, timeout time.Duration) error {
	res, err := client(timeout).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		return fmt.Errorf("the request was answered with status %d", res.StatusCode)
	}
	return nil
}

func connect(ctx context.Context, address string, timeout time.Duration) (Answer, string, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return Bad, err.Error(), nil
	}
	_ = conn.Close()
	return Good, "", nil
}
