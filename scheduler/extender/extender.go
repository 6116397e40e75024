package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

const (
	defaultTimeout = 5 * time.Second
	longestAnswer  = 64 << 20 // bytes; 5,000 node objects are a tenth of that
)

// Set is all extenders of a configuration.
type Set struct {
	list []*extender
	log  *slog.Logger
}

type extender struct {
	Config
	client  *http.Client
	managed map[corev1.ResourceName]bool
}

// New makes a Set. Files that the configuration names are read now.
func New(list []Config, log *slog.Logger) (*Set, error) {
	s := &Set{log: log}
	for _, ignorable := range []bool{false, true} {
		for k := range list {
			if list[k].Ignorable != ignorable {
				continue
			}
			e, err := newExtender(list[k])
			if err != nil {
				return nil, fmt.Errorf("extenders[%d]: %w", k, err)
			}
			s.list = append(s.list, e)
		}
	}
	return s, nil
}

func newExtender(c Config) (*extender, error) {
	var reach rest.TLSClientConfig
	if t := c.TLSConfig; t != nil {
		reach = rest.TLSClientConfig{Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData}
	}
	tls, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: reach})
	if err != nil {
		return nil, fmt.Errorf("tlsConfig: %w", err)
	}
	if c.HTTPTimeout.Duration == 0 {
		c.HTTPTimeout.Duration = defaultTimeout
	}
	e := &extender{Config: c, managed: map[corev1.ResourceName]bool{}, client: &http.Client{
		Timeout:   c.HTTPTimeout.Duration,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second},
	}}
	for _, r := range c.ManagedResources {
		e.managed[corev1.ResourceName(r.Name)] = true
	}
	return e, nil
}

// Ignored lists the resources that NodeResourcesFit leaves to extenders.
func Ignored(list []Config) (names []string) {
	for k := range list {
		for _, r := range list[k].ManagedResources {
			if r.IgnoredByScheduler {
				names = append(names, r.Name)
			}
		}
	}
	return names
}

// interested tells whether the pod wants a resource that the extender manages; one that manages none cares for all pods.
func (e *extender) interested(pod *corev1.Pod) bool {
	if len(e.managed) == 0 {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for k := range list {
			for _, wants := range []corev1.ResourceList{list[k].Resources.Requests, list[k].Resources.Limits} {
				for name := range wants {
					if e.managed[name] {
						return true
					}
				}
			}
		}
	}
	return false
}

// Consults tells whether any extender has a say in where the pod goes.
func (s *Set) Consults(pod *corev1.Pod) bool {
	for _, e := range s.list {
		if (e.FilterVerb != "" || e.PrioritizeVerb != "") && e.interested(pod) {
			return true
		}
	}
	return false
}

// send posts a message and reads the answer.
func (e *extender) send(ctx context.Context, verb string, args, answer any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("extender %s: %w", e.URLPrefix, err)
	}
	at := strings.TrimRight(e.URLPrefix, "/") + "/" + verb
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("extender %s: %w", e.URLPrefix, err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := e.client.Do(r)
	if err != nil {
		return fmt.Errorf("extender: %w", err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(got.Body, 1<<16)) // so that the connection can be used again
		return fmt.Errorf("failed %s with extender at URL %s, code %d", verb, at, got.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(got.Body, longestAnswer+1))
	if err != nil {
		return fmt.Errorf("extender %s: reading the answer: %w", at, err)
	}
	if len(raw) > longestAnswer {
		return fmt.Errorf("extender %s: its answer is longer than %d bytes", at, longestAnswer)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("extender %s: its answer is not understood: %w", at, err)
	}
	return nil
}

// bind has the extender bind the pod.
func (e *extender) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	var answer bindResult
	if err := e.send(ctx, e.BindVerb, &bindArgs{pod.Name, pod.Namespace, pod.UID, node}, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
