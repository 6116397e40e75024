// Package freeport finds ports for those who must know one before they, or somebody else, listen on it.
//
// A port of the range that the kernel gives to outgoing connections may be taken by one of them between being found and being listened on; those found here
// lie below that range. Two processes may still be given the same one: who can hand over an open listener should.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried: above those that services have by custom, below 32768, where Linux begins with outgoing connections (ip_local_port_range), and
// below Kubernetes' node ports, 30000.
const first, past, tries = 10000, 25000, 100

// Find finds a port on which host can be listened on over TCP and UDP.
func Find(host string) (int, error) {
	var last error
	for range tries {
		port := first + rand.IntN(past-first)
		if last = free(net.JoinHostPort(host, strconv.Itoa(port))); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found on %q in %d tries: %w", host, tries, last)
}

func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", address)
	if err == nil {
		err = p.Close()
	}
	return errors.Join(err, l.Close())
}
