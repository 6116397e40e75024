package core

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// podLog is where a container's log is read.
func podLog(ctx context.Context, env kind.Env, pod *corev1.Pod, _ string, query url.Values) (kind.Target, error) {
	out, err := logQuery(pod.Name, query)
	if err != nil {
		return kind.Target{}, err
	}
	container, err := containerOf(pod, query.Get("container"))
	if err != nil {
		return kind.Target{}, err
	}
	if pod.Spec.NodeName == "" { // nothing has been logged yet
		return kind.Target{}, nil
	}
	target, err := agentTarget(ctx, env, pod, fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container), out)
	target.InsecureTLS = isTrue(query.Get("insecureSkipTLSVerifyBackend"))
	target.Stream = out.Get("follow") != ""
	return target, err
}

// logQuery checks what of a log is asked for and words it for the node's agent.
func logQuery(pod string, in url.Values) (url.Values, error) {
	var p problems
	out := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if isTrue(in.Get(name)) {
			out.Set(name, "true")
		}
	}
	number := func(name string, least int64, why string) {
		text := in.Get(name)
		if text == "" {
			return
		}
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			p.invalid(field.NewPath(name), text, "must be an integer")
		case n < least:
			p.invalid(field.NewPath(name), n, why)
		default:
			out.Set(name, text)
		}
	}
	number("tailLines", 0, mustNotBeNegative)
	number("limitBytes", 1, "must be greater than 0")
	number("sinceSeconds", 1, "must be greater than 0")
	if text := in.Get("sinceTime"); text != "" {
		if in.Get("sinceSeconds") != "" {
			p.forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified")
		}
		var t metav1.Time
		if err := t.UnmarshalQueryParameter(text); err != nil {
			p.invalid(field.NewPath("sinceTime"), text, err.Error())
		}
		out.Set("sinceTime", t.UTC().Format(time.RFC3339))
	}
	if in.Get("stream") != "" && in.Get("stream") != corev1.LogStreamAll {
		p.forbidden(field.NewPath("stream"), "may not be specified")
	}
	if len(p.list) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod, p.list)
	}
	return out, nil
}

// podExec is where a command is run in a container.
func podExec(ctx context.Context, env kind.Env, pod *corev1.Pod, _ string, query url.Values) (kind.Target, error) {
	if _, err := containerOf(pod, query.Get("container")); err != nil {
		return kind.Target{}, err
	}
	out := streamQuery(query)
	out["command"] = query["command"]
	if len(out["command"]) == 0 {
		return kind.Target{}, apierrors.NewBadRequest("you must specify at least one command for the container")
	}
	return containerStream(ctx, env, pod, "exec", query.Get("container"), out)
}

// podAttach is where a container's streams are joined.
func podAttach(ctx context.Context, env kind.Env, pod *corev1.Pod, _ string, query url.Values) (kind.Target, error) {
	return containerStream(ctx, env, pod, "attach", query.Get("container"), streamQuery(query))
}

func containerStream(ctx context.Context, env kind.Env, pod *corev1.Pod, what, name string, query url.Values) (kind.Target, error) {
	container, err := containerOf(pod, name)
	if err != nil {
		return kind.Target{}, err
	}
	return agentTarget(ctx, env, pod, fmt.Sprintf("/%s/%s/%s/%s", what, pod.Namespace, pod.Name, container), query)
}

// streamQuery words stdin, stdout, stderr and tty as the agent knows them.
func streamQuery(in url.Values) url.Values {
	out := url.Values{}
	for from, to := range map[string]string{"stdin": corev1.ExecStdinParam, "stdout": corev1.ExecStdoutParam, "stderr": corev1.ExecStderrParam, "tty": corev1.ExecTTYParam} {
		if isTrue(in.Get(from)) {
			out.Set(to, "1")
		}
	}
	return out
}

// isTrue reads a boolean of a query as Kubernetes does: everything but "false" and "0" is true.
func isTrue(text string) bool {
	return text != "" && !strings.EqualFold(text, "false") && text != "0"
}

// podPortForward is where connections to a pod's ports are carried.
func podPortForward(ctx context.Context, env kind.Env, pod *corev1.Pod, _ string, query url.Values) (kind.Target, error) {
	out := url.Values{}
	var ports []string
	for _, text := range query["ports"] {
		for port := range strings.SplitSeq(text, ",") {
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return kind.Target{}, apierrors.NewBadRequest(fmt.Sprintf("%q is not a port: it must be a number from 1 to 65535", port))
			}
			ports = append(ports, port)
		}
	}
	if len(ports) > 0 {
		out.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	return agentTarget(ctx, env, pod, fmt.Sprintf("/portForward/%s/%s", pod.Namespace, pod.Name), out)
}

// podProxy is a pod's own address: at the port asked for, else at its first declared one.
func podProxy(ctx context.Context, _ kind.Env, pod *corev1.Pod, path string, query url.Values) (kind.Target, error) {
	via := kind.ViaOf(ctx)
	port := via.Port
	for i := 0; port == "" && i < len(pod.Spec.Containers); i++ {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			port = strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return proxyTarget(via.Scheme, podIP(pod), port, path, query)
}

// proxyTarget refuses addresses behind which the server itself might stand (loopback, link-local).
func proxyTarget(scheme, address, port, path string, query url.Values) (kind.Target, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.IsGlobalUnicast() {
		return kind.Target{}, apierrors.NewBadRequest("address not allowed")
	}
	if scheme == "" {
		scheme = "http"
	}
	host := address
	if port != "" {
		host = net.JoinHostPort(address, port)
	} else if ip.Is6() {
		host = "[" + address + "]"
	}
	return kind.Target{URL: &url.URL{Scheme: scheme, Host: host, Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query.Encode()},
		InsecureTLS: scheme == "https", Stream: true}, nil
}
