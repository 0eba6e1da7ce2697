package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// forwardCommand carries connections from one address to another, each written
// as NETWORK:ADDRESS (tcp:127.0.0.1:0, unix:/run/api.sock). It is the one way
// into the cluster's network namespace: outside it listens on a loopback port
// of the kernel's choice, which it writes to --port-file.
func forwardCommand() *cobra.Command {
	var listen, target, portFile string
	cmd := &cobra.Command{Use: "forward", RunE: func(*cobra.Command, []string) error {
		network, address, _ := strings.Cut(listen, ":")
		if network == "unix" {
			_ = os.Remove(address)
		}
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		if portFile != "" {
			port := fmt.Sprintln(l.Addr().(*net.TCPAddr).Port)
			temporary := filepath.Join(filepath.Dir(portFile), ".port")
			if err := os.WriteFile(temporary, []byte(port), 0o644); err != nil {
				return err
			}
			if err := os.Rename(temporary, portFile); err != nil {
				return err
			}
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go carry(c, target)
		}
	}}
	cmd.Flags().StringVar(&listen, "listen", "", "where connections come in")
	cmd.Flags().StringVar(&target, "target", "", "where they go")
	cmd.Flags().StringVar(&portFile, "port-file", "", "file for the TCP port that was chosen")
	return cmd
}

func carry(in net.Conn, target string) {
	defer in.Close()
	network, address, _ := strings.Cut(target, ":")
	out, err := net.Dial(network, address)
	if err != nil {
		return // the client sees a closed connection, as with a server that is down
	}
	defer out.Close()
	done := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		done <- struct{}{}
	}
	go pipe(out, in)
	go pipe(in, out)
	<-done
	<-done
}
