"""The running exporter: polls servers, serves endpoints, relays requests as a tap."""
