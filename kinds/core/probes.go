package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkLongRunning checks what only containers have that keep running: hooks and probes.
func (c *podCheck) checkLongRunning(container *corev1.Container, path *field.Path) {
	if l := container.Lifecycle; l != nil {
		at := path.Child("lifecycle")
		if l.PostStart != nil {
			c.checkHandler(handlerOfHook(l.PostStart), at.Child("postStart"))
		}
		if l.PreStop != nil {
			c.checkHandler(handlerOfHook(l.PreStop), at.Child("preStop"))
		}
		if l.StopSignal != nil {
			c.checkStopSignal(*l.StopSignal, at.Child("stopSignal"))
		}
	}
	const mustBeOne = "must be 1"
	if p, at := container.LivenessProbe, path.Child("livenessProbe"); p != nil {
		c.checkProbe(p, at)
		if p.SuccessThreshold != 1 {
			c.invalid(at.Child("successThreshold"), p.SuccessThreshold, mustBeOne)
		}
	}
	if p, at := container.ReadinessProbe, path.Child("readinessProbe"); p != nil {
		c.checkProbe(p, at)
		if p.TerminationGracePeriodSeconds != nil {
			c.invalid(at.Child("terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	}
	if p, at := container.StartupProbe, path.Child("startupProbe"); p != nil {
		c.checkProbe(p, at)
		if p.SuccessThreshold != 1 {
			c.invalid(at.Child("successThreshold"), p.SuccessThreshold, mustBeOne)
		}
	}
}

func (c *podCheck) checkProbe(p *corev1.Probe, path *field.Path) {
	c.checkHandler(handler{exec: p.Exec, http: p.HTTPGet, tcp: p.TCPSocket, grpc: p.GRPC}, path)
	c.notNegative(path.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds))
	c.notNegative(path.Child("timeoutSeconds"), int64(p.TimeoutSeconds))
	c.notNegative(path.Child("periodSeconds"), int64(p.PeriodSeconds))
	c.notNegative(path.Child("successThreshold"), int64(p.SuccessThreshold))
	c.notNegative(path.Child("failureThreshold"), int64(p.FailureThreshold))
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		c.invalid(path.Child("terminationGracePeriodSeconds"), *s, "must be greater than 0")
	}
}

// handler is what probes and hooks have in common.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func handlerOfHook(h *corev1.LifecycleHandler) handler {
	return handler{exec: h.Exec, http: h.HTTPGet, tcp: h.TCPSocket, sleep: h.Sleep}
}

func (c *podCheck) checkHandler(h handler, path *field.Path) {
	found := false
	one := func(name string, set bool, check func(at *field.Path)) {
		switch {
		case set && found:
			c.forbidden(path.Child(name), "may not specify more than 1 handler type")
		case set:
			found = true
			check(path.Child(name))
		}
	}
	one("exec", h.exec != nil, func(at *field.Path) {
		if len(h.exec.Command) == 0 {
			c.required(at.Child("command"), "")
		}
	})
	one("httpGet", h.http != nil, func(at *field.Path) { c.checkHTTPGet(h.http, at) })
	one("tcpSocket", h.tcp != nil, func(at *field.Path) { c.checkPort(h.tcp.Port, at.Child("port")) })
	one("grpc", h.grpc != nil, func(at *field.Path) { c.checkPort(intstr.FromInt32(h.grpc.Port), at.Child("port")) })
	one("sleep", h.sleep != nil, func(at *field.Path) {
		grace := c.spec.TerminationGracePeriodSeconds
		if grace != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *grace) {
			c.invalid(at, h.sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
		}
	})
	if !found {
		c.required(path, "must specify a handler type")
	}
}

func (c *podCheck) checkHTTPGet(get *corev1.HTTPGetAction, path *field.Path) {
	c.needs(path.Child("path"), get.Path)
	c.checkPort(get.Port, path.Child("port"))
	oneOf(&c.problems, path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for _, header := range get.HTTPHeaders {
		c.each(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))
	}
}

// checkPort checks a port number or a port name.
func (p *problems) checkPort(port intstr.IntOrString, path *field.Path) {
	if port.Type == intstr.String {
		p.each(path, port.StrVal, validation.IsValidPortName(port.StrVal))
		return
	}
	p.each(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}

func (c *podCheck) checkStopSignal(signal corev1.Signal, path *field.Path) {
	switch {
	case c.spec.OS == nil:
		c.forbidden(path, "may not be set for containers with empty `spec.os.name`")
	case c.spec.OS.Name == corev1.Windows:
		oneOf(&c.problems, path, signal, corev1.SIGKILL, corev1.SIGTERM)
	case c.spec.OS.Name == corev1.Linux:
		oneOf(&c.problems, path, signal, linuxSignals()...)
	}
}

func linuxSignals() []corev1.Signal {
	signals := []corev1.Signal{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL",
		"SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP",
		"SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
	}
	for i := 1; i <= 15; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMIN+%d", i)))
	}
	for i := 1; i <= 14; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMAX-%d", i)))
	}
	return signals
}
